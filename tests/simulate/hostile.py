"""What one team does to keep GPUs from all others: it is guaranteed nothing, and may only borrow.

Its pods do not heed SIGTERM. What it can write is what `edit` in its namespace allows where our rules of admission are
switched off, so there are forged owners, too. That its plain pods hold GPUs is a limit that docs/security.md states.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

from elastic_api.job import API_VERSION, KIND
from elastic_worker.contract import LABEL_INCARNATION
from tests.simulate import server as kinds
from tests.simulate.facts import (
    GPU,
    POOL,
    flavor_of,
    is_master,
    is_over,
    name_of,
    node_of,
    owner_of,
    reservation_in,
    staying,
    terminating,
)
from tests.simulate.foreign import place_is_upset
from tests.simulate.operators import SETTINGS
from tests.simulate.policies import OWNERS, PARENT
from tests.simulate.random_events import (
    MOST_JOBS,
    RANDOM_EVENTS,
    RandomEvent,
    job_comes,
    node_comes,
    node_goes,
    node_is_lost_or_comes_back,
    pod_sticks,
    policy_comes_or_is_edited,
    policy_goes,
    write_policy,
)
from tests.simulate.server import Body
from tests.simulate.violation import require
from tests.simulate.virtual_clock import VirtualClock
from tests.simulate.world import World

HOSTILE_TEAM = "red"
OTHERS = (*(name for name in OWNERS if name != HOSTILE_TEAM), PARENT)
DAY = 86_400
FINALIZER = "a.example/b"
STATION = "hostile"
"""In `server.aside`: of what is known by that name no rule of good conduct is expected any more."""
IGNORED_CLASSES = ("nobody-made-it", "system-node-critical")
"""PriorityClasses that count as 0: one that is not there, and one that jobs may not name."""
MOST_PHANTOMS = 6
LONGEST_SECONDS = SETTINGS.reclaim.max_grace_period_seconds + 60.0
"""No pod that was told to go is there for longer."""
_STEP, _MOST_STEPS = 30.0, 300


class HostileWorld(World):
    """A world with that team in it. Rest is when nobody is on his way out, either, and no node is kept for anybody."""

    def __init__(self, clock: VirtualClock, rng: Random) -> None:
        super().__init__(clock, rng)
        self.machines.stubborn.add(HOSTILE_TEAM)
        system = {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}
        self.server.create(kinds.PRIORITY_CLASSES, system)

    async def _check_rest(self) -> None:
        """Once nothing is under way; what was waited for may set others in motion, so rest is awaited again."""
        steps = 0
        while self._is_under_way():
            require(steps < _MOST_STEPS, f"pods leave, or nodes are kept, for {steps} steps though nothing happens")
            await self.advance(_STEP)
            steps += 1
        if steps:
            await self.come_to_rest()
        else:
            await super()._check_rest()

    def _is_under_way(self) -> bool:
        """Whether a pod is leaving, or a node is kept for one."""
        going = [pod for pod in self.server.all(kinds.PODS) if terminating(pod) and node_of(pod)]
        for pod in going:
            late = self.clock.time() - _told_to_go_at(pod)
            require(late <= LONGEST_SECONDS, f"{name_of(pod)} was told to go {late:.0f} s ago, and is still there")
        return bool(going) or any(reservation_in(pod) for pod in self.server.all(kinds.PODS))


def _told_to_go_at(pod: Body) -> float:
    meta = pod["metadata"]
    until: float = datetime.fromisoformat(meta["deletionTimestamp"]).timestamp()
    return until - float(meta["deletionGracePeriodSeconds"])


# -- its jobs --------------------------------------------------------------------------------------------------------


def _jobs(world: World) -> list[Body]:
    return [job for job in world.server.all(kinds.JOBS) if job["metadata"]["namespace"] == HOSTILE_TEAM]


def _pods(world: World, job: Body) -> list[Body]:
    uid = job["metadata"]["uid"]
    return [p for p in world.server.all(kinds.PODS) if owner_of(p) and owner_of(p)["uid"] == uid and staying(p)]


def _borrower(world: World) -> Body | None:
    """A job of the team that has pods and is not over."""
    return world.choose([job for job in _jobs(world) if not is_over(job) and _pods(world, job)])


def greedy(rng: Random) -> dict[str, Any]:
    """What such a job asks for, beside its template."""
    spec: dict[str, Any] = {"minReplicas": 1, "maxReplicas": rng.choice((4, 8, 16))}
    if rng.random() < 0.3:
        spec["priorityClassName"] = rng.choice(IGNORED_CLASSES)
    if rng.random() < 0.4:
        spec["cleanPodPolicy"] = "None"
    if rng.random() < 0.3:
        spec["activeDeadlineSeconds"] = rng.choice((60, 600))
    return spec


def greedy_job_comes(world: World) -> str:
    """A job that takes what it can get, and lets its pods go as late as it can."""
    if len(world.server.all(kinds.JOBS)) >= MOST_JOBS:
        return ""
    spec = greedy(world.rng)
    job = world.add_job(HOSTILE_TEAM, gpus=1, pool=world.rng.choice("aaab"), **spec)
    elasticity = {**job["spec"]["elasticity"], "gracePeriodSeconds": DAY}
    world.server.update(kinds.JOBS, job, spec={**job["spec"], "elasticity": elasticity})
    return f"greedy job {name_of(job)} comes: {spec}"


def its_class_goes(world: World) -> str:
    """A job that has borrowed names a PriorityClass that is not there, or a system's."""
    job = _borrower(world)
    if job is None:
        return ""
    name = world.rng.choice(IGNORED_CLASSES)
    world.server.edit(kinds.JOBS, job, {**job["spec"], "priorityClassName": name})
    return f"job {name_of(job)} gets priorityClassName {name}"


def its_spec_is_spoilt_or_mended(world: World) -> str:
    """A job that has borrowed cannot be read any more, or has a field that nobody knows; or can be read again."""
    spoilt = [job for job in _jobs(world) if not is_over(job) and "Nonesuch" in str(job["spec"].get("runtime"))]
    job = world.choose(spoilt) if spoilt and world.rng.random() < 0.5 else None
    if job is not None:
        world.server.edit(kinds.JOBS, job, {k: v for k, v in job["spec"].items() if k != "runtime"})
        world.server.aside.pop(name_of(job), None)
        return f"job {name_of(job)} can be read again"
    job = _borrower(world)
    if job is None:
        return ""
    if world.rng.random() < 0.3:
        world.server.edit(kinds.JOBS, job, {**job["spec"], "fromTheFuture": 1})
        return f"job {name_of(job)} has an unknown field"
    world.server.edit(kinds.JOBS, job, {**job["spec"], "runtime": {"mode": "Nonesuch"}})
    world.server.aside[name_of(job)] = STATION
    return f"job {name_of(job)} cannot be read any more"


def it_is_deleted_with_a_finalizer(world: World) -> str:
    """A job is deleted, and stays."""
    job = world.choose([job for job in _jobs(world) if not terminating(job)])
    if job is None:
        return ""
    world.server.relabel(kinds.JOBS, job, finalizers=[FINALIZER], deletionTimestamp=world.clock.text())
    return f"job {name_of(job)} is deleted, and kept by a finalizer"


def its_finalizer_goes(world: World) -> str:
    """And is gone at last."""
    job = world.choose([job for job in _jobs(world) if terminating(job)])
    if job is None:
        return ""
    world.server.remove(kinds.JOBS, job)
    return f"the finalizer of job {name_of(job)} goes"


def only_its_master_ends(world: World) -> str:
    """A job has succeeded, and its workers run on."""
    job = _borrower(world)
    running = [pod for pod in _pods(world, job) if pod["status"]["phase"] == "Running"] if job else []
    master = next(filter(is_master, running), None)
    if job is None or master is None:
        return ""
    world.machines.end(master, 0)
    return f"the master of {name_of(job)} ends with 0, its workers do not"


# -- its pods --------------------------------------------------------------------------------------------------------


def phantom_comes(world: World) -> str:
    """A pod that never runs: pinned to a node, with a job of the team as its forged owner, and a finalizer.

    Of a job that is not preemptible, and where there are no GPUs of the job's kind, none is: what can be forged there
    is a limit that docs/limits.md states.
    """
    phantoms = [pod for pod in world.server.all(kinds.PODS) if pod["metadata"].get("finalizers")]
    job = world.choose([job for job in _jobs(world) if job["spec"].get("preemptible", True)])
    pool = flavor_of(job["spec"]["template"]) if job else ""
    node = world.choose([one for one in world.server.all(kinds.NODES) if one["metadata"]["labels"][POOL] == pool])
    if node is None or job is None or len(phantoms) >= MOST_PHANTOMS:
        return ""
    world.server.aside[name_of(job)] = STATION
    number = 100 + int(world.new_name(""))
    incarnation = world.rng.choice((0, job.get("status", {}).get("incarnation", 1)))
    pod = world.server.create(kinds.PODS, _phantom(job, number, incarnation, name_of(node), pool))
    return f"phantom {name_of(pod)} comes, of incarnation {incarnation}, pinned to {name_of(node)}"


def _phantom(job: Body, number: int, incarnation: int, node: str, pool: str) -> Body:
    meta = job["metadata"]
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": meta["name"], "uid": meta["uid"], "controller": True}
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "metadata": {
            "name": f"{meta['name']}-worker-{number}",
            "namespace": HOSTILE_TEAM,
            "ownerReferences": [owner],
            "labels": {LABEL_INCARNATION: str(incarnation)},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": {GPU: "4"}, "requests": {"cpu": "1"}}}],
            "nodeSelector": {POOL: pool},
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
            },
            "schedulerName": "nobody",
            "terminationGracePeriodSeconds": DAY,
            **kinds.PRIORITIES[""],
        },
        "status": {"phase": "Pending"},
    }


def unplaceable_pod_comes(world: World) -> str:
    """A plain pod that kube-scheduler never places."""
    node = world.choose(world.server.all(kinds.NODES))
    if node is None or len(world.machines.never) >= MOST_PHANTOMS:
        return ""
    gpus, pool, of_class = world.rng.choice((1, 4)), node["metadata"]["labels"][POOL], "elastic-pytorch-worker"
    pod = world.add_foreign(HOSTILE_TEAM, gpus=gpus, pool=pool, of_class=of_class)
    world.machines.never.add(pod["metadata"]["uid"])
    world.server.aside[name_of(pod)] = STATION
    return f"{name_of(pod)} comes, and is never placed"


# -- the others ------------------------------------------------------------------------------------------------------


def others_policy_comes_or_is_edited(world: World) -> str:
    """Another team gets a policy, or another one."""
    return write_policy(world, world.rng.choice(OTHERS))


def its_policy_comes(world: World) -> str:
    """It is guaranteed nothing, has no share of what is idle, and may borrow, some GPUs or without end."""
    borrowing = {"weight": 0, **world.rng.choice(({}, {}, {"limit": 4}))}
    flavors = [{"name": pool, "guaranteed": 0, "borrowing": borrowing} for pool in "ab"]
    spec = {"flavors": flavors, "namespaces": [HOSTILE_TEAM], "priority": 0}
    world.server.create(kinds.POLICIES, {"metadata": {"name": HOSTILE_TEAM}, "spec": spec})
    return f"policy {HOSTILE_TEAM} comes: {borrowing}"


FIRST: tuple[Callable[[World], str], ...] = (
    *[node_comes] * 4,
    its_policy_comes,
    *[others_policy_comes_or_is_edited] * 3,
    *[greedy_job_comes] * 2,
    *[job_comes] * 2,
)
_NOT_HERE = (
    policy_comes_or_is_edited,
    policy_goes,
    # Of what never ends terminating nothing is claimed: these have histories of their own.
    pod_sticks,
    place_is_upset,
    node_is_lost_or_comes_back,
    node_goes,
)
HOSTILE: dict[RandomEvent, int] = {
    **{event: weight for event, weight in RANDOM_EVENTS.items() if event not in _NOT_HERE},
    others_policy_comes_or_is_edited: 6,
    greedy_job_comes: 10,
    its_class_goes: 4,
    its_spec_is_spoilt_or_mended: 6,
    it_is_deleted_with_a_finalizer: 5,
    its_finalizer_goes: 2,
    only_its_master_ends: 5,
    phantom_comes: 5,
    unplaceable_pod_comes: 4,
}
