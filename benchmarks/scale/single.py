"""Measures single changes among many pods: the time until the operator, or a bare client, has created the new pod.

A pod of a job is lost; a foreign pod leaves a full node on which jobs wait to grow; a job is scaled up by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.live.errors import BenchError
from benchmarks.live.place import Body, Place
from benchmarks.live.quantile import quantile
from benchmarks.react import scenario as pools
from benchmarks.react.latencies import CREATE, DELETE, SCALE, Reaction
from benchmarks.react.tries import answer
from benchmarks.scale.fill import JOBS, PODS, until_ready
from benchmarks.scale.plain import Objects, of_nobody
from benchmarks.scale.scenario import NAMESPACE, Scenario
from devcluster.progress import Progress

ANSWER_SECONDS = 60.0
FULL = "full"
"""The pool of nodes that have no GPU free."""


@dataclass(frozen=True, slots=True)
class Beside:
    """The answers of the operator, and those of a bare client, to changes of one kind."""

    ours: Sequence[Reaction]
    bare: Sequence[Reaction]

    @property
    def ours_p50(self) -> float:
        """Seconds from the change to the pod."""
        return _p50(self.ours)

    @property
    def bare_p50(self) -> float:
        """Seconds from the change to the pod of the bare client."""
        return _p50(self.bare)

    @property
    def ratio(self) -> float:
        """The ratio of the two: 1 is the bare client's figure."""
        return self.ours_p50 / self.bare_p50


def _p50(reactions: Sequence[Reaction]) -> float:
    return quantile([each.from_fact for each in reactions], 0.5)


def lost_by_operator(place: Place, jobs: Sequence[str]) -> list[Reaction]:
    """Delete one worker of each of these jobs, one after the other: repeated losses would make a job wait."""
    gone = partial(place.delete_pod, NAMESPACE)
    return [answer(place, DELETE, f"{job}-worker-0", gone, job=job) for job in jobs]


def scaled_by_operator(place: Place, plan: Scenario, jobs: Sequence[str]) -> list[Reaction]:
    """Scale up each of these jobs, which run in full beside free GPUs, by one pod."""
    return [answer(place, SCALE, job, partial(_scale, place, size=plan.size + 1), job=job) for job in jobs]


def freed_by_operator(place: Place, plan: Scenario, progress: Progress) -> list[Reaction]:
    """Delete foreign pods on full nodes, one by one: one of the jobs that wait to grow there gets a pod each time.

    The nodes are added for it, and everything stays.
    """
    full = pool_of(plan)
    place.add_nodes(
        full.full_nodes, gpus=pools.GPUS_PER_NODE, prefix=f"{FULL}-", labels=pools.pool(FULL), progress=progress
    )
    place.create_all([(PODS, pools.foreign_pod(name)) for name in full.foreign_pods])
    since = place.now()
    place.create_all([(JOBS, pools.job(name, size=full.size)) for name in full.full_jobs])
    until_ready(place, full.full_jobs, len(full.full_jobs) * full.size, since=since)
    for name in full.full_jobs:
        _scale(place, name, size=2 * full.size)
    place.quiet()
    gone = partial(place.delete_pod, NAMESPACE)
    return [answer(place, DELETE, name, gone) for name in full.foreign_pods[: plan.tries]]


def pool_of(plan: Scenario) -> pools.Scenario:
    """The full nodes: one foreign pod for each try, and as many jobs that hold all other GPUs."""
    return pools.Scenario(jobs=2 * plan.tries, pods=4 * plan.tries, tries=plan.tries)


def _scale(place: Place, job: str, *, size: int) -> None:
    """Send the request of `kubectl scale`."""
    place.merge(f"{JOBS}/{job}/scale", {"spec": {"replicas": size}})


@dataclass(frozen=True, slots=True)
class Change:
    """A write to the object `name`, which watches report, and the pod that is the answer."""

    name: str
    act: Callable[[str], None]
    pod: Body


def lost_by_bare_client(place: Place, objects: dict[str, Objects], jobs: Sequence[str]) -> list[Reaction]:
    """Delete pods without an owner; a watching client creates each deleted pod again, and does nothing else."""
    gone = partial(place.delete_pod, NAMESPACE)
    pods = [max(_pods(objects, job), key=_name) for job in jobs]
    return _by_bare_client(place, PODS, ("DELETED", DELETE), [Change(_name(pod), gone, pod) for pod in pods])


def freed_by_bare_client(place: Place, plan: Scenario, objects: dict[str, Objects]) -> list[Reaction]:
    """Delete foreign pods; a watching client creates one pod for each."""
    gone = partial(place.delete_pod, NAMESPACE)
    others = pool_of(plan).foreign_pods[: plan.tries]
    place.create_all([(PODS, pools.foreign_pod(name)) for name in others])
    bodies = [_renamed(_pods(objects, job)[-1], f"for-{name}") for job, name in zip(objects, others, strict=False)]
    changes = [Change(name, gone, body) for name, body in zip(others, bodies, strict=True)]
    return _by_bare_client(place, PODS, ("DELETED", DELETE), changes)


def scaled_by_bare_client(
    place: Place, plan: Scenario, objects: dict[str, Objects], jobs: Sequence[str]
) -> list[Reaction]:
    """Scale up jobs without an operator; a watching client creates one pod for each."""
    place.create_all([(JOBS, plan.job(job)) for job in jobs])
    act = partial(_scale, place, size=plan.size + 1)
    changes = [Change(job, act, _renamed(_pods(objects, job)[-1], f"for-{job}")) for job in jobs]
    return _by_bare_client(place, JOBS, ("MODIFIED", SCALE), changes)


def _by_bare_client(place: Place, watched: str, told: tuple[str, str], changes: Sequence[Change]) -> list[Reaction]:
    """`told` is the change as in the watch, and as in the audit log."""
    event, write = told
    answers = {change.name: change.pod for change in changes}
    place.quiet()
    version = place.get(watched)["metadata"]["resourceVersion"]
    query = {"watch": "true", "resourceVersion": version}
    found = []
    with place.http.stream("GET", watched, params=query, timeout=ANSWER_SECONDS) as events:
        lines = events.iter_lines()
        for change in changes:
            place.quiet()
            since = place.now()
            change.act(change.name)
            place.create(PODS, answers[_next(lines, event)])
            wanted = ((write, change.name), (CREATE, _name(change.pod)))
            found.append(Reaction(*(place.last_write(*each, since=since) for each in wanted)))
    return found


def _next(lines: Iterator[str], kind: str) -> str:
    for line in lines:
        event = json.loads(line)
        if event["type"] == kind:
            return _name(event["object"])
    raise BenchError("the API server has ended the bare client's watch")


def _pods(objects: dict[str, Objects], job: str) -> list[Body]:
    return [of_nobody(body) for _, body in objects[job].pods]


def _renamed(body: Body, name: str) -> Body:
    return {**body, "metadata": {"name": name}}


def _name(body: Body) -> str:
    name: str = body["metadata"]["name"]
    return name
