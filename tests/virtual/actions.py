"""The actions and conditions of scenarios.

An action changes the world: its nodes, jobs, pods, replicas of the operator, and their lines. A condition reads it. An
index names a replica by the order of their starts, from 0.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from elastic_api.job import API_VERSION, KIND
from tests.api.jobs import make_container, make_job, make_template
from tests.kit.requests import Matcher, Refusal, Request, anything, deletes_a_pod, makes_a_pod
from tests.simulate import server as kinds
from tests.simulate.facts import GPU, POOL, name_of
from tests.simulate.server import Body
from tests.virtual.line import Faults, Line
from tests.virtual.loop import OUTSIDE
from tests.virtual.scenario import Action, Condition
from tests.virtual.world import ProcessWorld

HOME = "free"
"""The namespace of the scenarios; no policy owns it."""

# -- nodes, jobs, pods ------------------------------------------------------------------------------------------------


def nodes(count: int, gpus: int, *, pool: str = "a") -> Action:
    """Add nodes with that many GPUs each."""
    return lambda world: [world.add_node(gpus, pool) for _ in range(count)]


def replica(*, who: str = "") -> Action:
    """Start one more replica of the operator."""
    return lambda world: world.start(who=who)


def manifest(name: str = "toy", *, small: int = 1, big: int = 8, gpus: int = 1, pool: str = "a", **spec: Any) -> Body:
    """The manifest of a job with that many GPUs per pod, which grows without delay."""
    container = make_container(resources={"limits": {GPU: gpus}})
    fields = {
        "minReplicas": small,
        "maxReplicas": big,
        "elasticity": {"scaleUpDelaySeconds": 0, "gracePeriodSeconds": 1},
        "template": make_template(container, nodeSelector={POOL: pool}),
        **spec,
    }
    body = make_job(name, **fields)
    body["metadata"]["namespace"] = HOME
    return body


def job(name: str = "toy", **spec: Any) -> Action:
    """A user creates a job (see `manifest`)."""
    return lambda world: world.server.create(kinds.JOBS, manifest(name, **spec))


def edit(name: str, **spec: Any) -> Action:
    """A user changes the spec."""

    def do(world: ProcessWorld) -> None:
        body = world.job(name)
        assert body is not None
        world.server.edit(kinds.JOBS, body, {**body["spec"], **spec})

    return do


def delete_job(name: str) -> Action:
    """A user deletes the job. The garbage collector deletes its objects."""
    return lambda world: world.server.remove(kinds.JOBS, world.job(name) or {})


def delete_pod(name: str) -> Action:
    """A user deletes a pod, without a grace period."""
    return lambda world: world.server.delete_pod(world.pod(name), grace=0)


def end(exit_code: int, *names: str) -> Action:
    """The containers of these pods end with that code, one pod after the other."""
    return lambda world: [world.machines.end(world.pod(name), exit_code) for name in names]


def occupy(count: int, *, prefix: str = "foreign") -> Action:
    """Create foreign pods with one GPU each, in turn on the nodes."""

    def do(world: ProcessWorld) -> None:
        places = sorted(name_of(node) for node in world.server.all(kinds.NODES))
        for index in range(count):
            spec = {
                "nodeName": places[index % len(places)],
                "containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}],
                **kinds.PRIORITIES[""],
            }
            meta = {"name": f"{prefix}-{index}", "namespace": HOME}
            world.server.create(kinds.PODS, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})

    return do


def let_go(does: bool) -> Action:
    """Set whether kubelets remove terminating pods."""

    def do(world: ProcessWorld) -> None:
        world.machines.let_go = does
        world.wake_machines()

    return do


def start_pods(*, first: float, then: float) -> Action:
    """Kubelets start the first pod `first` seconds after it was placed, and each further one `then` seconds later."""

    def do(world: ProcessWorld) -> None:
        due: dict[str, float] = {}

        def pulls(pod: Body) -> bool:
            uid, now = pod["metadata"]["uid"], world.clock.passed
            if uid not in due:
                due[uid] = max(now + first, max(due.values(), default=0.0) + then)
                asyncio.get_running_loop().call_at(due[uid], world.wake_machines, context=OUTSIDE)
            return now < due[uid]

        world.machines.pulls = pulls

    return do


# -- faults of replicas and of their lines ---------------------------------------------------------------------------


def kill(index: int) -> Action:
    """Kill that replica, as by SIGKILL."""
    return lambda world: world.replicas[index].kill()


def stop(index: int) -> Action:
    """Stop that replica, as by SIGTERM."""
    return lambda world: world.replicas[index].stop()


def freeze(index: int) -> Action:
    """Freeze that replica, as by SIGSTOP."""
    return lambda world: world.replicas[index].freeze()


def block(index: int) -> Action:
    """Block the event loop of that replica."""
    return lambda world: world.replicas[index].block()


def thaw(index: int) -> Action:
    """Thaw that replica, as by SIGCONT, or unblock its event loop."""
    return lambda world: world.replicas[index].thaw()


def on(index: int, do: Callable[[Line], object]) -> Action:
    """Call `do` with the line of that replica."""
    return lambda world: do(world.replicas[index].line)


def fault(index: int = 0, **what: Any) -> Action:
    """Set faults of the line of that replica (the fields of `Faults`)."""

    def do(line: Line) -> None:
        for name, value in what.items():
            setattr(line.faults, name, value)

    assert set(what) <= set(Faults.__slots__)
    return on(index, do)


def refuse(
    status: int,
    *,
    where: Matcher = anything,
    times: int | None = None,
    retry_after: int | None = None,
    message: str = "",
) -> Action:
    """Answer matching requests of the first replica with that status, `times` times (None: always)."""
    return on(0, lambda line: line.faults.refusals.append(Refusal(status, where, times, retry_after, message)))


def heal(index: int = 0) -> Action:
    """End all faults of the line of that replica."""
    return on(index, lambda line: line.heal())


def cut(index: int = 0) -> Action:
    """End all connections of that replica."""
    return on(index, lambda line: line.cut())


def restart_server(world: ProcessWorld) -> None:
    """Restart the API server: it loses connections, watch history and continue tokens."""
    world.api.forget()
    for each in world.replicas:
        each.line.cut()


# -- conditions -----------------------------------------------------------------------------------------------------


def settled(name: str, size: int) -> Condition:
    """That many pods of the job run, and the job's status has that size."""
    return lambda world: world.settled(name, size)


def leads(index: int) -> Condition:
    """That replica leads."""
    return lambda world: world.replicas[index].leads


def lives(index: int) -> Condition:
    """That replica runs."""
    return lambda world: world.replicas[index].lives


def has_logged(index: int, text: str, *, times: int | None = None) -> Condition:
    """The replica has logged the text in this step; with `times`, that often since its start."""

    def look(world: ProcessWorld) -> bool:
        since = 0.0 if times is not None else world.step_began
        said = [line for at, who, line in world.logs.lines if who == f"r{index + 1}" and at >= since]
        found = sum(text in line for line in said)
        return found == times if times is not None else found > 0

    return look


def writes(index: int) -> Condition:
    """That replica has sent a write in this step, apart from the lease."""
    return lambda world: world.replicas[index].writes(since=world.step_began)


def has_status(name: str, **fields: Any) -> Condition:
    """The job's status has these fields, with these values."""
    return lambda world: {field: world.status(name).get(field) for field in fields} == fields


def condition(name: str, type_: str, reason: str, message: str = "") -> Condition:
    """The job's condition of that type has the reason, and its message contains the text."""

    def look(world: ProcessWorld) -> bool:
        found = next((c for c in world.status(name).get("conditions", ()) if c["type"] == type_), {})
        return found.get("reason") == reason and message in found.get("message", "")

    return look


def no(fact: Condition) -> Condition:
    """Negates a condition."""
    return lambda world: not fact(world)


def event(name: str, reason: str = "", note: str = "") -> Condition:
    """There is an event of the object of that name. Its reason and its note contain these texts."""

    def look(world: ProcessWorld) -> bool:
        found = [e for e in world.server.all(kinds.EVENTS) if e["regarding"]["name"] == name]
        return any(reason in one["reason"] and note in one["note"] for one in found)

    return look


def successful_requests(world: ProcessWorld, where: Matcher) -> list[Request]:
    """The successful requests of all replicas, including those whose answer was lost."""
    return [e.request for each in world.replicas for e in each.line.log if 200 <= e.status < 300 and where(e.request)]


def creations(world: ProcessWorld) -> Counter[str]:
    """How often an operator created each pod, by the name of the pod."""
    return Counter(request.body["metadata"]["name"] for request in successful_requests(world, makes_a_pod))


def deletions(world: ProcessWorld) -> Counter[str]:
    """How often an operator deleted each pod, by the name of the pod."""
    return Counter(request.path.rsplit("/", 1)[1] for request in successful_requests(world, deletes_a_pod))


def of(plural: str) -> Matcher:
    """Matches requests for the objects of a kind, or for their collection."""
    return lambda request: re.search(rf"/{plural}(/|$)", request.path) is not None


OF_JOBS: Matcher = of(f"{API_VERSION.rpartition('/')[2]}/{KIND.lower()}s")
