"""The random events of a history, with their weights.

Each event draws from `world.rng`, changes the world, and returns a description. It returns "" if it is impossible now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_api.job import JobSpec
from tests.simulate import server as kinds
from tests.simulate.facts import FLAVORS, ended, is_master, is_ready, name_of, node_of, owner_of, staying, terminating
from tests.simulate.foreign import foreign_comes, foreign_ends, place_is_upset
from tests.simulate.policies import NAMESPACES, OWNERS, PARENT
from tests.simulate.server import Body
from tests.simulate.world import World

MOST_JOBS, MOST_NODES = 20, 8
MENDING = 0.6
"""How often an event repairs something (resumes, uncordons), rather than picks any object."""
RandomEvent = Callable[[World], str]
_CAN_BE_KEPT = "preemptible" in JobSpec.model_fields


def open_jobs(world: World) -> list[Body]:
    """Jobs that have not ended."""
    return [job for job in world.server.all(kinds.JOBS) if "completionTime" not in job.get("status", {})]


def _own_pods(world: World, *, running: bool = False) -> list[Body]:
    pods = [pod for pod in world.server.all(kinds.PODS) if owner_of(pod) and staying(pod)]
    return [pod for pod in pods if not running or pod["status"]["phase"] == "Running"]


# -- jobs ------------------------------------------------------------------------------------------------------------


def job_comes(world: World) -> str:
    """A user creates a job, unless there are many."""
    return "" if len(world.server.all(kinds.JOBS)) >= MOST_JOBS else any_job_comes(world)


def any_job_comes(world: World) -> str:
    """A user creates a job of random size, shape and team."""
    rng = world.rng
    least = rng.choice((1, 1, 1, 2, 2, 3))
    spec: dict[str, Any] = {"minReplicas": least, "maxReplicas": least + rng.choice((0, 1, 2, 3, 5, 9))}
    if rng.random() < 0.15:
        spec["replicaStep"] = 2
    if rng.random() < 0.25:
        spec["priorityClassName"] = "high"
    if _CAN_BE_KEPT and rng.random() < 0.15:
        spec["preemptible"] = False
    namespace, gpus, pool = rng.choice(NAMESPACES), rng.choice((1, 1, 1, 1, 2, 4)), rng.choice("aaab")
    cpu, delay = rng.choice((1, 1, 1, 3)), rng.choice((0, 0, 30))
    job = world.add_job(namespace, gpus=gpus, pool=pool, cpu=cpu, delay=delay, **spec)
    shown = {name: value for name, value in job["spec"].items() if name not in ("template", "elasticity")}
    return f"job {namespace}/{name_of(job)} of {gpus} GPUs and {cpu} CPUs each comes to pool {pool}: {shown}"


def job_goes(world: World) -> str:
    """A user deletes a job."""
    return _delete_one(world, kinds.JOBS, "job")


def job_is_edited(world: World) -> str:
    """A user changes the largest size."""
    job = world.choose(open_jobs(world))
    return edit_job(world, job) if job else ""


def edit_job(world: World, job: Body) -> str:
    """That job gets another largest size."""
    spec = job["spec"]
    most = spec["minReplicas"] + world.rng.choice((0, 1, 2, 4))
    world.server.edit(kinds.JOBS, job, {**spec, "maxReplicas": most})
    return f"job {name_of(job)} gets maxReplicas {most}"


def job_is_suspended_or_resumed(world: World) -> str:
    """A user suspends a job, or resumes it."""
    jobs = open_jobs(world)
    suspended = [job for job in jobs if job["spec"].get("suspend")]
    job = world.choose(suspended if world.rng.random() < MENDING else jobs)
    if job is None:
        return ""
    suspend = not job["spec"].get("suspend", False)
    world.server.edit(kinds.JOBS, job, {**job["spec"], "suspend": suspend})
    return f"job {name_of(job)} gets suspend {suspend}"


def pod_fails(world: World) -> str:
    """A pod's container ends with code 1."""
    pod = world.choose(_own_pods(world, running=True))
    if pod is None:
        return ""
    world.machines.end(pod, 1)
    return f"pod {name_of(pod)} fails"


def job_succeeds(world: World) -> str:
    """All of a job's containers end well."""
    pod = world.choose([pod for pod in _own_pods(world, running=True) if is_master(pod)])
    if pod is None:
        return ""
    owner = owner_of(pod)["uid"]
    for one in _own_pods(world, running=True):
        if owner_of(one)["uid"] == owner:
            world.machines.end(one, 0)
    return f"the job of {name_of(pod)} succeeds"


def pod_is_deleted(world: World) -> str:
    """Somebody deletes one of a job's pods."""
    pod = world.choose(_own_pods(world))
    if pod is None:
        return ""
    world.server.delete_pod(pod)
    return f"pod {name_of(pod)} is deleted by somebody"


def pod_sticks(world: World) -> str:
    """A pod sticks in Terminating, or all stuck pods are released."""
    if world.machines.stuck and world.rng.random() < 0.5:
        world.machines.stuck.clear()
        return "stuck pods come loose"
    pods = [p for p in world.server.all(kinds.PODS) if owner_of(p) and node_of(p) and not ended(p)]
    pod = world.choose([p for p in pods if terminating(p)] or pods)
    if pod is None:
        return ""
    world.machines.stuck.add(pod["metadata"]["uid"])
    return f"pod {name_of(pod)} will stick in Terminating"


# -- nodes -----------------------------------------------------------------------------------------------------------


def node_comes(world: World) -> str:
    """A node joins the cluster, with some GPUs of either pool."""
    if len(world.server.all(kinds.NODES)) >= MOST_NODES:
        return ""
    gpus, pool = world.rng.choice((1, 2, 2, 4, 4, 8)), world.rng.choice("aaab")
    node = world.add_node(gpus, pool, cpu=world.rng.choice((64, 64, gpus + 1)))
    return f"node {name_of(node)} with {gpus} GPUs comes to pool {pool}"


def node_goes(world: World) -> str:
    """A node is taken out of the cluster."""
    nodes = world.server.all(kinds.NODES)
    node = world.choose(nodes) if len(nodes) > 3 else None
    if node is None:
        return ""
    world.server.remove(kinds.NODES, node)
    return f"node {name_of(node)} goes"


def node_is_cordoned_or_not(world: World) -> str:
    """A node is cordoned, or uncordoned."""
    nodes = world.server.all(kinds.NODES)
    cordoned = [node for node in nodes if node["spec"].get("unschedulable")]
    node = world.choose(cordoned if world.rng.random() < MENDING else nodes)
    if node is None:
        return ""
    closed = not node["spec"].get("unschedulable", False)
    world.server.update(kinds.NODES, node, spec={"unschedulable": closed})
    return f"node {name_of(node)} is {'cordoned' if closed else 'uncordoned'}"


def node_is_lost_or_comes_back(world: World) -> str:
    """A node becomes NotReady, or Ready again."""
    nodes = world.server.all(kinds.NODES)
    lost = [node for node in nodes if not is_ready(node)]
    node = world.choose(lost if world.rng.random() < MENDING else nodes)
    if node is None:
        return ""
    ready = not is_ready(node)
    world.server.update(kinds.NODES, node, status={**node["status"], "conditions": [world.readiness(ready)]})
    return f"node {name_of(node)} is {'Ready' if ready else 'NotReady'}"


# -- others ----------------------------------------------------------------------------------------------------------


def policy_comes_or_is_edited(world: World) -> str:
    """A team gets a policy, or another one."""
    return write_policy(world, world.rng.choice((*OWNERS, *OWNERS, PARENT)))


def write_policy(world: World, name: str) -> str:
    """That team gets a policy, or another one."""
    known = world.server.find(kinds.POLICIES, "", name)
    spec = _policy(world, name)
    if known is None:
        world.server.create(kinds.POLICIES, {"metadata": {"name": name}, "spec": spec})
    else:
        world.server.edit(kinds.POLICIES, known, spec)
    return f"policy {name} {'comes' if known is None else 'is edited'}: {spec}"


def policy_goes(world: World) -> str:
    """A policy is deleted."""
    return _delete_one(world, kinds.POLICIES, "policy")


def _delete_one(world: World, kind: str, noun: str) -> str:
    """Delete a random object of that kind."""
    chosen = world.choose(world.server.all(kind))
    if chosen is None:
        return ""
    world.server.remove(kind, chosen)
    return f"{noun} {name_of(chosen)} goes"


def _policy(world: World, name: str) -> dict[str, Any]:
    rng = world.rng
    flavors = []
    for flavor in FLAVORS:
        entry: dict[str, Any] = {"name": flavor, "guaranteed": rng.choice((0, 1, 2, 2, 4, 6))}
        borrowing = {"limit": rng.choice((0, 1, 2, 4))} if rng.random() < 0.4 else {}
        entry["borrowing"] = {**borrowing, "weight": rng.choice((0, 1, 1, 4))}
        if rng.random() < 0.06:
            entry["lending"] = {"limit": rng.choice((0, 1, 2))}
        flavors.append(entry)
    spec: dict[str, Any] = {"flavors": flavors, "priority": rng.choice((0, 5))}
    if rng.random() < 0.15:
        spec["reclaim"] = {"minRuntimeSeconds": rng.choice((60, 600))}
    if name != PARENT:
        if rng.random() < 0.15:
            spec["perJob"] = {"maxGPUs": rng.choice((2, 4, 6))}
        if rng.random() < 0.15:
            spec["timeSharing"] = {"quantumSeconds": rng.choice((300, 600))}
        spec["namespaces"] = [name]
        if rng.random() < 0.4:
            spec["parent"] = PARENT
    return spec


def server_falters(world: World) -> str:
    """Some of the operator's next writes fail, before they take effect or after."""
    world.operator.faults.faltering = world.rng.choice((1, 2, 5, 10))
    return f"up to {world.operator.faults.faltering} writes may fail"


def operator_is_replaced(world: World) -> str:
    """Another operator leads from the middle of the next pass on."""
    writes = world.rng.choice((0, 1, 1, 2, 2, 3, 4))
    world.operator.faults.left = writes
    return f"another operator leads after {writes} more writes"


def time_passes(world: World) -> str:
    """The description has the seconds; the history lets them pass."""
    return f"{world.rng.choice((5, 20, 45, 100, 400))} s pass"


RANDOM_EVENTS: dict[RandomEvent, int] = {
    job_comes: 16,
    job_goes: 3,
    job_is_edited: 4,
    job_is_suspended_or_resumed: 4,
    pod_fails: 4,
    job_succeeds: 3,
    pod_is_deleted: 3,
    pod_sticks: 3,
    node_comes: 3,
    node_goes: 2,
    node_is_cordoned_or_not: 4,
    node_is_lost_or_comes_back: 4,
    foreign_comes: 14,
    foreign_ends: 8,
    place_is_upset: 12,
    policy_comes_or_is_edited: 7,
    policy_goes: 1,
    operator_is_replaced: 5,
    server_falters: 5,
    time_passes: 8,
}
