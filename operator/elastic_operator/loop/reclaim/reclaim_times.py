"""Measures how long preemptors wait until other teams have given GPUs back, and counts the GPUs that preemptors lacked
and others lost.

A foreign pod waits until it is bound, a job until it has the pods of its minimum. Both waits begin when this process
first sees that they want GPUs. They are measured only if pods were evicted for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from elastic_operator.memory import Changes
from elastic_operator.metrics import Metrics
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.demand import JobDemand


@dataclass(slots=True)
class _WaitingPreemptor:
    """An entry that wants GPUs `since` (monotonic); `caused_evictions`: pods of others were or are evicted for it."""

    since: float
    is_pod: bool
    caused_evictions: bool = False


class ReclaimTimes:
    """The waits of preemptors. `is_bound` says of a pod (uid) whether it has a node; None if there is no such pod."""

    def __init__(self, metrics: Metrics, *, is_bound: Callable[[str], bool | None]) -> None:
        self._metrics, self._is_bound = metrics, is_bound
        self._changes = Changes[JobDemand](attrgetter("uid"))
        self._jobs: set[str] = set()
        """All jobs, and those that lack pods of their minimum (`_lacking`), both by uid."""
        self._lacking: dict[str, None] = {}
        self._waiting: dict[str, _WaitingPreemptor] = {}
        self._growing: frozenset[str] = frozenset()
        self._evicted: frozenset[str] = frozenset()

    def note_allocation(self, inputs: AllocationInputs, allocation: Allocation) -> None:
        """Measure by a new allocation, made from that input."""
        now, evictions = time.monotonic(), allocation.evictions
        pods = {foreign_pod.uid: foreign_pod for foreign_pod in inputs.foreign_pods}
        gone, new = self._changes.take(inputs.jobs)
        for job in gone:
            self._jobs.discard(job.uid)
            self._lacking.pop(job.uid, None)
        self._jobs.update(job.uid for job in new)
        self._lacking |= {job.uid: None for job in new if _lacks_minimum(job)}
        self._end(pods.keys() | self._lacking.keys(), now)
        for uid in (*pods, *self._lacking):
            self._waiting.setdefault(uid, _WaitingPreemptor(now, is_pod=uid in pods))
        if evictions or self._evicted:
            self._count_evicted(inputs, {pod for uid in evictions for pod in allocation.assignment(uid).release})
        if evictions or self._growing:
            self._mark(inputs, allocation, {uid for preemptors in evictions.values() for uid in preemptors})

    def _end(self, wanting: set[str], now: float) -> None:
        """End the waits of entries that want no GPUs any more, because they have their GPUs or are deleted. A pod that
        still exists without a node goes on waiting.
        """
        for uid in self._waiting.keys() - wanting:
            waiting = self._waiting[uid]
            has_it = self._is_bound(uid) if waiting.is_pod else uid in self._jobs or None
            if has_it is False:
                continue
            if has_it and waiting.caused_evictions:
                self._metrics.reclaim.observe(now - waiting.since)
            del self._waiting[uid]

    def _mark(self, inputs: AllocationInputs, allocation: Allocation, preemptors: set[str]) -> None:
        """Note the preemptors (uids) of the evicted pods. Each counts once while it waits or grows."""
        for foreign_pod in inputs.foreign_pods:
            if foreign_pod.uid in preemptors:
                self._note_evictions(foreign_pod.uid, _missing(foreign_pod.demand))
        growing = set()
        for job in inputs.jobs:
            if job.uid not in preemptors:
                continue
            if job.uid in self._waiting:
                self._note_evictions(job.uid, _missing(job))
                continue
            growing.add(job.uid)
            if job.uid not in self._growing:
                slots = (slot for slot in allocation.assignment(job.uid).create if not slot.ready)
                self._metrics.requested_gpus.inc(sum(job.shape.of(slot.role).gpus for slot in slots))
        self._growing = frozenset(growing)

    def _note_evictions(self, uid: str, gpus: int) -> None:
        waiting = self._waiting[uid]
        if not waiting.caused_evictions:
            waiting.caused_evictions = True
            self._metrics.requested_gpus.inc(gpus)

    def _count_evicted(self, inputs: AllocationInputs, evicted: set[str]) -> None:
        """Count the GPUs of newly evicted pods (uids)."""
        new = evicted - self._evicted
        members = [member for job in inputs.jobs for member in job.members]
        self._metrics.evicted_gpus.inc(sum(member.gpus for member in members if member.uid in new))
        self._evicted = frozenset(evicted | (self._evicted & {member.uid for member in members}))


def _lacks_minimum(job: JobDemand) -> bool:
    return job.wants_pods and job.lacks_minimum and _missing(job) > 0


def _missing(job: JobDemand) -> int:
    """The GPUs that the job lacks for its minimum."""
    return job.gpus_of_size(job.minimum) - sum(job.shape.of(member.role).gpus for member in job.members)
