"""What is done in stories, and what can be seen of it. Replicas are told by the order of their start, from 0."""

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
from tests.virtual.story import Deed, Fact
from tests.virtual.world import ProcessWorld

HOME = "free"
"""The namespace in which stories play; no policy owns it."""

# -- who is in it ----------------------------------------------------------------------------------------------------


def nodes(count: int, gpus: int, *, pool: str = "a") -> Deed:
    """Nodes with so many GPUs each."""
    return lambda world: [world.add_node(gpus, pool) for _ in range(count)]


def replica(*, who: str = "") -> Deed:
    """One more operator."""
    return lambda world: world.start(who=who)


def manifest(name: str = "toy", *, small: int = 1, big: int = 8, gpus: int = 1, pool: str = "a", **spec: Any) -> Body:
    """A job of pods with so many GPUs that grows without delay."""
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


def job(name: str = "toy", **spec: Any) -> Deed:
    """A user creates such a job."""
    return lambda world: world.server.create(kinds.JOBS, manifest(name, **spec))


def edit(name: str, **spec: Any) -> Deed:
    """A user changes the spec."""

    def do(world: ProcessWorld) -> None:
        body = world.job(name)
        assert body is not None
        world.server.edit(kinds.JOBS, body, {**body["spec"], **spec})

    return do


def delete_job(name: str) -> Deed:
    """A user deletes the job; the garbage collector follows."""
    return lambda world: world.server.remove(kinds.JOBS, world.job(name) or {})


def delete_pod(name: str) -> Deed:
    """Somebody deletes a pod, without grace."""
    return lambda world: world.server.delete_pod(world.pod(name), grace=0)


def end(exit_code: int, *names: str) -> Deed:
    """The containers of these pods end, one after the other."""
    return lambda world: [world.machines.end(world.pod(name), exit_code) for name in names]


def occupy(count: int, *, prefix: str = "foreign") -> Deed:
    """Pods of somebody else with one GPU each, in turns on the nodes."""

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


def let_go(does: bool) -> Deed:
    """Kubelets let pods go that are to go, or do not."""

    def do(world: ProcessWorld) -> None:
        world.machines.let_go = does
        world.stir()

    return do


def start_pods(*, first: float, then: float) -> Deed:
    """Kubelets start the first pod so many seconds after it was placed, and each further one so much later."""

    def do(world: ProcessWorld) -> None:
        due: dict[str, float] = {}

        def pulls(pod: Body) -> bool:
            uid, now = pod["metadata"]["uid"], world.moments.passed
            if uid not in due:
                due[uid] = max(now + first, max(due.values(), default=0.0) + then)
                asyncio.get_running_loop().call_at(due[uid], world.stir, context=OUTSIDE)
            return now < due[uid]

        world.machines.pulls = pulls

    return do


# -- what becomes of replicas and their lines ------------------------------------------------------------------------


def kill(index: int) -> Deed:
    """At once."""
    return lambda world: world.replicas[index].kill()


def stop(index: int) -> Deed:
    """As by SIGTERM."""
    return lambda world: world.replicas[index].stop()


def freeze(index: int) -> Deed:
    """As by SIGSTOP."""
    return lambda world: world.replicas[index].freeze()


def block(index: int) -> Deed:
    """As by a turn of its event loop that does not end."""
    return lambda world: world.replicas[index].block()


def thaw(index: int) -> Deed:
    """As by SIGCONT, or the end of such a turn."""
    return lambda world: world.replicas[index].thaw()


def on(index: int, do: Callable[[Line], object]) -> Deed:
    """Something happens to the line of that replica."""
    return lambda world: do(world.replicas[index].line)


def fault(index: int = 0, **what: Any) -> Deed:
    """The line of that replica is like that from now on."""

    def do(line: Line) -> None:
        for name, value in what.items():
            setattr(line.faults, name, value)

    assert set(what) <= set(Faults.__slots__)
    return on(index, do)


def refuse(status: int, *, where: Matcher = anything, times: int | None = None, retry_after: int | None = None) -> Deed:
    """Matching requests of the first replica are answered so."""
    return on(0, lambda line: line.faults.refusals.append(Refusal(status, where, times, retry_after)))


def heal(index: int = 0) -> Deed:
    """Nothing is wrong with that line any more."""
    return on(index, lambda line: line.heal())


def cut(index: int = 0) -> Deed:
    """All connections of that replica end."""
    return on(index, lambda line: line.cut())


def restart_server(world: ProcessWorld) -> None:
    """What was not stored is forgotten: connections, histories, continue tokens."""
    world.api.forget()
    for each in world.replicas:
        each.line.cut()


# -- what is seen ----------------------------------------------------------------------------------------------------


def settled(name: str, size: int) -> Fact:
    """So many pods of the job run, and its status says so."""
    return lambda world: world.settled(name, size)


def leads(index: int) -> Fact:
    """That replica leads."""
    return lambda world: world.replicas[index].leads


def lives(index: int) -> Fact:
    """That replica runs."""
    return lambda world: world.replicas[index].lives


def says(index: int, text: str, *, times: int | None = None) -> Fact:
    """What that replica logged since the row began has the text; all that it ever logged, where `times` is given."""

    def look(world: ProcessWorld) -> bool:
        since = 0.0 if times is not None else world.row_began
        said = [line for at, who, line in world.said.lines if who == f"r{index + 1}" and at >= since]
        found = sum(text in line for line in said)
        return found == times if times is not None else found > 0

    return look


def writes(index: int) -> Fact:
    """That replica sent a write since the row began, the lease apart."""
    return lambda world: world.replicas[index].writes(since=world.row_began)


def has_status(name: str, **fields: Any) -> Fact:
    """The job's status has these fields, with these values."""
    return lambda world: {field: world.status(name).get(field) for field in fields} == fields


def condition(name: str, type_: str, reason: str, message: str = "") -> Fact:
    """The job's condition of that type has the reason, and a message with that text in it."""

    def look(world: ProcessWorld) -> bool:
        found = next((c for c in world.status(name).get("conditions", ()) if c["type"] == type_), {})
        return found.get("reason") == reason and message in found.get("message", "")

    return look


def no(fact: Fact) -> Fact:
    """The opposite."""
    return lambda world: not fact(world)


def event(name: str, reason: str = "", note: str = "") -> Fact:
    """There is an event about the object of that name, with that text in its note."""

    def look(world: ProcessWorld) -> bool:
        found = [e for e in world.server.all(kinds.EVENTS) if e["regarding"]["name"] == name]
        return any(reason in one["reason"] and note in one["note"] for one in found)

    return look


def carried_out(world: ProcessWorld, where: Matcher) -> list[Request]:
    """Requests of all operators that the server did as it was asked, whether or not they heard of it."""
    return [e.request for each in world.replicas for e in each.line.log if 200 <= e.status < 300 and where(e.request)]


def made(world: ProcessWorld) -> Counter[str]:
    """How often the server made each pod for an operator."""
    return Counter(request.body["metadata"]["name"] for request in carried_out(world, makes_a_pod))


def taken_back(world: ProcessWorld) -> Counter[str]:
    """How often the server deleted each pod for an operator."""
    return Counter(request.path.rsplit("/", 1)[1] for request in carried_out(world, deletes_a_pod))


def of(plural: str) -> Matcher:
    """Requests about the collection of a kind, or its objects."""
    return lambda request: re.search(rf"/{plural}(/|$)", request.path) is not None


OF_JOBS: Matcher = of(f"{API_VERSION.rpartition('/')[2]}/{KIND.lower()}s")
