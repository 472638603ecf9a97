"""Computes reclaims from the lives of pods: the victims for each waiting pod, and the time of each part. Pure
arithmetic; times are those at which steps were seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from benchmarks.live.quantile import quantile
from demo.lives import Life, Step


@dataclass(frozen=True, slots=True)
class Reclaim:
    """A pod for which others were evicted; seconds count from its creation.

    `running_after` is when its container ran, as its owner sees it; None if it does not yet.
    """

    pod: str
    node: str
    gpus: int
    victims: tuple[str, ...]
    evicted_gpus: int
    evicted_after: float
    freed_after: float
    bound_after: float
    running_after: float | None

    def as_json(self) -> dict[str, object]:
        """The reclaim for JSON, with seconds rounded to milliseconds."""
        return {
            "pod": self.pod,
            "node": self.node,
            "victims": list(self.victims),
            "requestedGPUs": self.gpus,
            "evictedGPUs": self.evicted_gpus,
            "pendingToEvictedSeconds": round(self.evicted_after, 3),
            "pendingToFreedSeconds": round(self.freed_after, 3),
            "pendingToBoundSeconds": round(self.bound_after, 3),
            "pendingToRunningSeconds": None if self.running_after is None else round(self.running_after, 3),
        }


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The reclaims of pods of one team together: the evicted pods, and which of them for which pod."""

    reclaims: tuple[Reclaim, ...]
    evicted: tuple[str, ...]
    evicted_gpus: int
    requested_gpus: int

    def after(self, share: float, seconds: Callable[[Reclaim], float | None]) -> float:
        """The seconds since its creation that this share of the pods does not exceed; NaN if there are none."""
        return quantile((found for one in self.reclaims if (found := seconds(one)) is not None), share)

    def running_after(self, share: float) -> float:
        """The seconds from creation to a running container that this share of the pods does not exceed."""
        return self.after(share, lambda one: one.running_after)

    @property
    def ratio(self) -> float:
        """Evicted GPUs per requested GPU: 1.0 is enough, more is too much."""
        return self.evicted_gpus / self.requested_gpus


def all_of(rounds: Sequence[TakenBack]) -> TakenBack:
    """The reclaims of several rounds, one after the other."""
    return TakenBack(
        reclaims=tuple(reclaim for one in rounds for reclaim in one.reclaims),
        evicted=tuple(pod for one in rounds for pod in one.evicted),
        evicted_gpus=sum(one.evicted_gpus for one in rounds),
        requested_gpus=sum(one.requested_gpus for one in rounds),
    )


def taken_back_by(preemptors: Sequence[Life], others: Sequence[Life]) -> TakenBack:
    """The reclaims of `preemptors`, at least one, from `others`; pods deleted since the first preemptor's creation
    count as evicted.
    """
    evicted = _evicted_between(others, min(life.seen[Step.CREATED] for life in preemptors), inf)
    return TakenBack(
        reclaims=tuple(reclaims_of(preemptors, others)),
        evicted=tuple(life.ref for life in evicted),
        evicted_gpus=sum(life.gpus for life in evicted),
        requested_gpus=sum(life.gpus for life in preemptors),
    )


def reclaims_of(preemptors: Sequence[Life], others: Sequence[Life]) -> list[Reclaim]:
    """A reclaim for each of `preemptors` that was bound to a node on which one of `others` was deleted after the
    preemptor's creation.
    """
    found = [
        _reclaim(preemptor, _victims(preemptor, others))
        for preemptor in preemptors
        if preemptor.at(Step.BOUND) is not None
    ]
    return sorted((reclaim for reclaim in found if reclaim), key=lambda reclaim: reclaim.pod)


def _evicted_between(lives: Sequence[Life], first: float, last: float) -> list[Life]:
    """Pods that were deleted in that time, in order."""
    found = [life for life in lives if first <= life.seen.get(Step.EVICTED, first - 1) <= last]
    return sorted(found, key=lambda life: life.seen[Step.EVICTED])


def _victims(preemptor: Life, others: Sequence[Life]) -> list[Life]:
    """The pods on the preemptor's node that were deleted between its creation and its binding."""
    there = [life for life in others if life.node == preemptor.node and life.at(Step.BOUND) is not None]
    return _evicted_between(there, preemptor.seen[Step.CREATED], preemptor.seen[Step.BOUND])


def _reclaim(preemptor: Life, victims: list[Life]) -> Reclaim | None:
    if not victims:
        return None
    created, bound = preemptor.seen[Step.CREATED], preemptor.seen[Step.BOUND]
    # A bound pod has its room: the victim's end may be seen later, as another watcher may hear of it first.
    freed = max(min(life.seen.get(Step.GONE, bound), life.seen.get(Step.ENDED, bound)) for life in victims)
    return Reclaim(
        pod=preemptor.ref,
        node=preemptor.node,
        gpus=preemptor.gpus,
        victims=tuple(life.ref for life in victims),
        evicted_gpus=sum(life.gpus for life in victims),
        evicted_after=victims[-1].seen[Step.EVICTED] - created,
        freed_after=freed - created,
        bound_after=bound - created,
        running_after=None if (running := preemptor.at(Step.RUNNING)) is None else running - created,
    )
