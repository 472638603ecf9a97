"""Measures single changes among many pods: the time until the operator, or a bare client, has created the new pod.

A pod of a job is lost; a foreign pod leaves a full node on which jobs wait to grow; a job is scaled up by one.

The two answer in turns, because a machine may be twice as fast a minute later. While the bare client answers, the
operators are paused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import httpx

from benchmarks.live.errors import BenchError
from benchmarks.live.operators import Operator, operators, paused
from benchmarks.live.place import Body, Place
from benchmarks.live.quantile import quantile
from benchmarks.react import scenario as pools
from benchmarks.react.latencies import CREATE, DELETE, SCALE, Reaction
from benchmarks.react.tries import answer
from benchmarks.scale.fill import JOBS, PODS, until_ready
from benchmarks.scale.plain import of_nobody
from benchmarks.scale.scenario import NAMESPACE, Scenario
from devcluster.progress import Progress

BARE_SECONDS = 2.0
"""The time limit for each request of the bare client, because the operators are paused meanwhile."""
BARE = "bare"
"""The names of all objects of the bare client begin with this."""
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


@dataclass(frozen=True, slots=True)
class Change:
    """A write to the object `name`; `event` and `what` are its names in the watch of that collection and in the audit
    log. A bare client answers with `pod`.
    """

    name: str
    collection: str
    event: str
    what: str
    act: Callable[[str], None]
    pod: Body


def lost_by_operator(place: Place, jobs: Sequence[str]) -> list[Reaction]:
    """Delete one worker of each of these jobs, one after the other: repeated losses would make a job wait."""
    return [_lost(place, job) for job in jobs]


def lost(place: Place, pod: Body, jobs: Sequence[str]) -> Beside:
    """Delete a worker of each of these jobs; beside it, pods without an owner, which the bare client creates again."""
    return _in_turns(place, (partial(_lost, place, job) for job in jobs), _deletions(place, pod, "lost", len(jobs)))


def scaled(place: Place, plan: Scenario, pod: Body, jobs: Sequence[str]) -> Beside:
    """Scale up each of these jobs, which run in full beside free GPUs, by one pod; beside it, suspended jobs, which the
    operator gives no pod.
    """
    act = partial(_scale, place, size=plan.size + 1)
    names = [f"{BARE}-{job}" for job in jobs]
    place.create_all([(JOBS, _suspended(plan.job(name))) for name in names])
    changes = [Change(name, JOBS, "MODIFIED", SCALE, act, _named(pod, f"{BARE}-for-{name}")) for name in names]
    return _in_turns(place, (partial(answer, place, SCALE, job, act, job=job) for job in jobs), changes)


def freed(place: Place, plan: Scenario, pod: Body, progress: Progress) -> Beside:
    """Delete foreign pods on full nodes, one by one: one of the jobs that wait to grow there gets a pod each time.
    Beside it, pods elsewhere, for each of which the bare client creates another one.

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
    gone, foreign = partial(place.delete_pod, NAMESPACE), full.foreign_pods[: plan.tries]
    changes = [
        replace(change, pod=_named(pod, f"{BARE}-for-{change.name}"))
        for change in _deletions(place, pod, "freed", plan.tries)
    ]
    return _in_turns(place, (partial(answer, place, DELETE, name, gone) for name in foreign), changes)


def pool_of(plan: Scenario) -> pools.Scenario:
    """The full nodes: one foreign pod for each try, and as many jobs that hold all other GPUs."""
    return pools.Scenario(jobs=2 * plan.tries, pods=4 * plan.tries, tries=plan.tries)


def _lost(place: Place, job: str) -> Reaction:
    return answer(place, DELETE, f"{job}-worker-0", partial(place.delete_pod, NAMESPACE), job=job)


def _scale(place: Place, job: str, *, size: int) -> None:
    """Send the request of `kubectl scale`."""
    place.merge(f"{JOBS}/{job}/scale", {"spec": {"replicas": size}})


def _deletions(place: Place, pod: Body, kind: str, count: int) -> list[Change]:
    """The deletions of that many pods without an owner, which are created here. Each is created again as the answer."""
    pods = [_named(pod, f"{BARE}-{kind}-{number}") for number in range(count)]
    place.create_all([(PODS, each) for each in pods])
    gone = partial(place.delete_pod, NAMESPACE)
    return [Change(_name(each), PODS, "DELETED", DELETE, gone, each) for each in pods]


def _in_turns(place: Place, ours: Iterable[Callable[[], Reaction]], bare: Iterable[Change]) -> Beside:
    """Measure the operator's answers and those of the bare client in turns."""
    running = operators(place)
    with _bare_client(place) as client:
        found = [
            (react(), _by_bare_client(place, client, running, change)) for react, change in zip(ours, bare, strict=True)
        ]
    return Beside(*zip(*found, strict=True))


def _bare_client(place: Place) -> httpx.Client:
    """A client that keeps its connections open while the operator answers."""
    return httpx.Client(
        base_url=place.http.base_url,
        verify=place.cluster.api.context,
        timeout=BARE_SECONDS,
        limits=httpx.Limits(keepalive_expiry=None),
        trust_env=False,
    )


def _by_bare_client(place: Place, client: httpx.Client, running: Sequence[Operator], change: Change) -> Reaction:
    """The answer of a client that watches, creates one pod, and does nothing else. Raises BenchError, and HTTPError of
    httpx after `BARE_SECONDS`.
    """
    place.quiet()
    version = place.get(f"{change.collection}?limit=1")["metadata"]["resourceVersion"]
    query = {"watch": "true", "resourceVersion": version}
    with client.stream("GET", change.collection, params=query) as events:
        client.get("/readyz")  # opens the second connection, if the watch has taken the first
        since = place.now()
        with paused(running):
            change.act(change.name)
            _wait_for(events.iter_lines(), change)
            client.post(PODS, json=change.pod).raise_for_status()
    wanted = ((change.what, change.name), (CREATE, _name(change.pod)))
    return Reaction(*(place.last_write(*each, since=since) for each in wanted))


def _wait_for(lines: Iterator[str], change: Change) -> None:
    for line in lines:
        event = json.loads(line)
        if event["type"] == change.event and _name(event["object"]) == change.name:
            return
    raise BenchError("the API server has ended the bare client's watch")


def unpinned(pod: Body) -> Body:
    """The pod of a job without its owner and its node, so that it has room wherever GPUs are free."""
    found = of_nobody(pod)
    found["spec"].pop("affinity", None)
    return found


def _suspended(job: Body) -> Body:
    return {**job, "spec": {**job["spec"], "suspend": True}}


def _named(body: Body, name: str) -> Body:
    return {**body, "metadata": {"name": name}}


def _name(body: Body) -> str:
    name: str = body["metadata"]["name"]
    return name
