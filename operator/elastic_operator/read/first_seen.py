"""Corrects the times at which nodes stopped being Ready and pods began to wait. After a step of the API server's clock,
the operator would otherwise give up nodes and pods too early (29).

The operator gives up or deletes pods some time after a node has stopped being Ready, a pod has begun to wait, or a
master was lost. A step of the clock must not make this time pass. So if the clock steps, each time that was seen before
moves by the same step. If a time is in the future, or more than a minute old, when this process first sees it, the
moment of that first sight counts instead: the clock may have stepped, which the process notices only seconds later. In
its first pass, a process believes the written times.

No field says when a scheduler first found no node for a pod that had scheduling gates (176), or at which the scheduler
itself had failed (208): the condition keeps its time while its status is False. For such a pod the moment of the first
sight counts.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TypeVar

from elastic_operator.cluster.clock import ServerClock
from elastic_operator.memory import drop_older_half
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.times import not_later

LATE_NEWS_SECONDS = 60.0
"""A time that is further back was written by a clock that is behind. A time that is less far back may be late news."""
MAX_KEPT = 100_000
"""The most times of each kind that are remembered. Most of them are of deleted objects."""
K = TypeVar("K")
V = TypeVar("V")


class FirstSeen:
    """Gives the time to use instead of a written time, by object (uid)."""

    def __init__(self, clock: ServerClock) -> None:
        self.clock, self._passes = clock, 0
        self._seen: dict[tuple[str, float], float] = {}
        """The times minus the clock's steps until then, so that later steps do not change them."""
        self._deletion_requested: dict[str, None] = {}
        """The pods that were being deleted while they ran."""
        self._untried: dict[str, None] = {}
        """The pods that had scheduling gates, or at which a scheduler failed."""

    def begin_pass(self) -> None:
        """Begin a pass, which reads all news since the last one."""
        self._passes += 1

    def since(self, uid: str, written: float) -> float:
        """The time `written`, on the present clock, but no later than the moment when it was first seen."""
        seen = self._seen.pop((uid, written), None)
        if seen is None:
            now = self.clock.time()
            is_too_old = self._passes > 1 and now - written >= LATE_NEWS_SECONDS
            seen = (now if is_too_old else not_later(written, now)) - self.clock.stepped
        _keep(self._seen, (uid, written), seen)
        return seen + self.clock.stepped

    def of_pod(self, pod: OwnPod) -> OwnPod:
        """The pod with corrected times: when it began to wait for a node, and when it began to start on the node.

        After a step of the API server's clock, the clock of the pod's node does not show whether the pod ended before
        or after its deletion was requested (18). So the time of its end is dropped.
        """
        if pod.deleting_since is not None and pod.main.finished_at is None:
            _keep(self._deletion_requested, pod.uid, None)
        elif pod.uid in self._deletion_requested and self.clock.stepped:
            return replace(pod, main=replace(pod.main, finished_at=None))
        if pod.phase != "Pending":
            return pod

        if pod.gates or pod.scheduler_error:
            _keep(self._untried, pod.uid, None)

        def since(written: float | None) -> float | None:
            return self.since(pod.uid, written) if written else written

        was_untried = pod.unschedulable_since is None or pod.uid in self._untried
        refused_since = inf if pod.unschedulable and was_untried else pod.unschedulable_since  # inf: as first seen
        written = pod.main.waiting_since, pod.created, pod.bound_since, refused_since
        waiting_since, created, bound_since, unschedulable_since = seen = tuple(map(since, written))
        if seen == written:
            return pod  # unchanged means identical (23)
        return replace(
            pod,
            main=replace(pod.main, waiting_since=waiting_since),
            created=created or 0.0,
            bound_since=bound_since,
            unschedulable_since=unschedulable_since,
        )


def _keep(memory: dict[K, V], key: K, value: V) -> None:
    """Remember the value as the newest value. If there are too many, forget the least recently used half."""
    memory.pop(key, None)
    memory[key] = value
    drop_older_half(memory, MAX_KEPT)
