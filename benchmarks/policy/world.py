"""A cluster with its jobs in virtual time: a trace has its events, a policy decides.

A policy gets the world whenever something has changed, and may `create` and `delete` pods of jobs and `place` plain
pods. The results are recorded when it returns: sizes, and waits for guaranteed GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Protocol

from benchmarks.policy.model import NODE_LOSS_SECONDS, Assumptions, Mode
from benchmarks.policy.traces import GPUS_PER_NODE, JobTrace, Loss, Outage, PlainTrace, Trace
from benchmarks.policy.training import MOMENT, Pod, Training
from benchmarks.policy.watching import Watching


class Policy(Protocol):
    """Decides how many pods each job gets, and on which nodes. `wake` is when to call it again without an event."""

    name: str
    wake: float

    def least(self, job: JobTrace) -> int:
        """The fewest pods with which the policy runs the job."""

    def mode(self, job: JobTrace) -> Mode:
        """The mode in which the policy runs the job."""

    def decide(self, world: World) -> None:
        """Make and carry out the decisions of this moment."""


@dataclass(slots=True, eq=False)
class Plain:
    """A plain pod: its node, once it has one, and its end."""

    trace: PlainTrace
    node: int | None = None
    ends: float = inf

    @property
    def missing(self) -> int:
        """The GPUs that it requests and does not have."""
        return int(self.node is None)


@dataclass(slots=True)
class Place:
    """A node. `away_since`: since when it is off; `given_up`: its pods are lost."""

    away_since: float = inf
    given_up: bool = False
    gpus: list[str] = field(default_factory=lambda: [""] * GPUS_PER_NODE)
    """The uid of the pod that has a GPU, by GPU."""

    room: int = GPUS_PER_NODE
    """The number of free GPUs."""

    @property
    def free(self) -> int:
        """The number of GPUs that may be used now."""
        return 0 if self.away_since < inf else self.room


class World:
    """One run of one policy on one trace."""

    def __init__(self, trace: Trace, policy: Policy, assumed: Assumptions) -> None:
        self.trace, self.policy, self.assumed, self.now = trace, policy, assumed, 0.0
        self.places = [Place() for _ in range(trace.nodes)]
        self.jobs: dict[str, Training] = {}
        self.plain: dict[str, Plain] = {}
        self.ended: list[Training] = []
        self.guaranteed = {team.name: team.guaranteed for team in trace.teams}
        self.used = Counter[str]()
        """The GPUs of each team's pods that are not being deleted, by team."""
        self.watching = Watching()
        self.plain_seconds = 0.0
        self.pod_changes = 0
        """How many pods of jobs were created or deleted."""
        self._uids, self._order = count(), count()
        self._coming: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = False
        for job in trace.jobs:
            self._at(job.arrives, self._arrive, job)
        for pod in trace.plain:
            self._at(pod.arrives, self._arrive_plain, pod)
        for loss in trace.losses:
            self._at(loss.at, self._lose, loss)
        for outage in trace.outages:
            self._at(outage.at, self._go_away, outage)

    def run(self) -> World:
        """Run to the horizon."""
        self._until(self.trace.horizon)
        self.watching.close(self)
        return self

    # -- the interface for policies ----------------------------------------------------------------------------------

    def free(self) -> list[int]:
        """Free GPUs, by node."""
        return [place.free for place in self.places]

    def create(self, job: Training, index: int, node: int) -> Pod:
        """Create a pod of the job on a node with room for it."""
        gpus, place = job.trace.gpus, self.places[node]
        assert place.free >= gpus, f"{self.policy.name}: node {node} has no room for {job.trace.name}"
        pod = Pod(f"pod-{next(self._uids)}", index, node, gpus, ready=self.now + self.assumed.start_seconds)
        self._occupy(place, pod.uid, gpus)
        self.used[job.trace.team] += gpus
        job.pods[pod.uid] = pod
        self.pod_changes += 1
        return pod

    def delete(self, job: Training, pods: Iterable[Pod]) -> None:
        """Delete these pods of the job."""
        going = list(pods)
        self.used[job.trace.team] -= sum(pod.gpus for pod in going)
        job.tell_to_go(going)
        self.pod_changes += len(going)

    def place(self, pod: Plain, node: int) -> None:
        """Start a plain pod on a node."""
        assert self.places[node].free, f"{self.policy.name}: node {node} has no room for {pod.trace.name}"
        self._occupy(self.places[node], pod.trace.name, 1)
        self.used[pod.trace.team] += 1
        pod.node, pod.ends = node, self.now + pod.trace.seconds
        self._at(pod.ends, self._end_plain, pod)

    # -- time ----------------------------------------------------------------------------------------------------------

    def _until(self, end: float) -> None:
        while self.now < end:
            next_job = min((job.next_event() for job in self.jobs.values()), default=inf)
            next_thing = self._coming[0][0] if self._coming else inf
            now = min(max(self.now, min(next_job, next_thing, self.policy.wake)), end)
            self._pass(now)
            due = self.policy.wake <= now + MOMENT
            if self._changed or due:
                self._changed = False
                self.policy.decide(self)
                assert self.policy.wake > now, f"{self.policy.name} asks for decisions without end"
                self.watching.after(self)
                self._changed = False

    def _pass(self, now: float) -> None:
        """Let time pass until `now`, and carry out the events of that moment."""
        self.plain_seconds += sum(pod.node is not None for pod in self.plain.values()) * (now - self.now)
        self.now = now
        for job in self.jobs.values():
            job.advance(now)
        for job in [job for job in self.jobs.values() if job.finished is not None]:
            self._end(job)
        while self._coming and self._coming[0][0] <= now + MOMENT:
            heappop(self._coming)[2]()
        for job in self.jobs.values():
            if not job.pods:
                continue
            before = len(job.pods), job.generation
            uids = set(job.pods)
            job.regroup()
            self._vacate(uids - job.pods.keys())
            self._changed |= before != (len(job.pods), job.generation)

    def _at(self, time: float, call: Callable[..., None], *what: object) -> None:
        coming: tuple[float, int, Callable[[], None]] = (time, next(self._order), partial(call, *what))
        heappush(self._coming, coming)

    # -- events --------------------------------------------------------------------------------------------------------

    def _arrive(self, trace: JobTrace) -> None:
        least, mode = self.policy.least(trace), self.policy.mode(trace)
        self.jobs[trace.name] = Training(trace, self.assumed, least=least, mode=mode, now=self.now)
        self._from_outside()

    def _arrive_plain(self, trace: PlainTrace) -> None:
        self.plain[trace.name] = Plain(trace)
        self._from_outside()

    def _end(self, job: Training) -> None:
        del self.jobs[job.trace.name]
        self._vacate(job.pods.keys())
        self.used[job.trace.team] -= job.held
        job.pods.clear()
        self.ended.append(job)
        self._from_outside()

    def _end_plain(self, pod: Plain) -> None:
        if self.plain.get(pod.trace.name) is pod and abs(pod.ends - self.now) <= MOMENT:
            del self.plain[pod.trace.name]
            self.used[pod.trace.team] -= 1
            self._vacate({pod.trace.name})
            self._from_outside()

    def _lose(self, loss: Loss) -> None:
        uid = self.places[loss.node].gpus[loss.gpu]
        if uid and not self.places[loss.node].away_since < inf:
            self._lose_pods({uid})

    def _go_away(self, outage: Outage) -> None:
        self.places[outage.node].away_since = self.now
        self._at(outage.at + NODE_LOSS_SECONDS, self._give_up, outage)
        self._at(outage.until, self._come_back, outage)
        self._stand_still(outage.node)
        self._from_outside()

    def _stand_still(self, node: int) -> None:
        """Let the node's pods fall silent."""
        for job in self.jobs.values():
            job.miss([pod for pod in job.pods.values() if pod.node == node])

    def _give_up(self, outage: Outage) -> None:
        place = self.places[outage.node]
        place.given_up = True
        self._lose_pods({uid for uid in place.gpus if uid})

    def _come_back(self, outage: Outage) -> None:
        place = self.places[outage.node]
        place.away_since, place.given_up = inf, False
        self._from_outside()

    def _lose_pods(self, uids: set[str]) -> None:
        """Remove the node's pods. Lost plain pods do not return: their owners start others, which are in the trace."""
        for job in self.jobs.values():
            if lost := [job.pods[uid] for uid in uids & job.pods.keys()]:
                self.watching.lost(job)
                self.used[job.trace.team] -= sum(pod.gpus for pod in lost if pod.stays)
                job.lose(lost)
        for name in uids & self.plain.keys():
            self.used[self.plain.pop(name).trace.team] -= 1
        self._vacate(uids)
        self._from_outside()

    def _from_outside(self) -> None:
        self._changed = True
        self.watching.outside += 1

    def _occupy(self, place: Place, uid: str, gpus: int) -> None:
        for _ in range(gpus):
            place.gpus[place.gpus.index("")] = uid
        place.room -= gpus

    def _vacate(self, uids: Iterable[str]) -> None:
        gone = set(uids)
        if not gone:
            return
        self._changed = True
        for place in self.places:
            if not gone.isdisjoint(place.gpus):
                place.gpus = ["" if uid in gone else uid for uid in place.gpus]
                place.room = place.gpus.count("")

    def unready(self) -> Iterator[tuple[int, float]]:
        """The nodes that are off, and since when."""
        return ((number, place.away_since) for number, place in enumerate(self.places) if place.away_since < inf)
