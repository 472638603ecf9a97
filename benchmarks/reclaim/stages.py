"""Computes the stages of a request for GPUs from the writes of an audit log. Pure arithmetic.

A request is one pod, or several that were created together. Times are those of the API server's answers, since a write
takes effect shortly before its answer; a request begins with the arrival of its first write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from benchmarks.live.audit import Write
from benchmarks.live.place import KUBELETS, OPERATOR

SCHEDULER = "system:kube-scheduler"
CREATE, DELETE, BIND = "create pods", "delete pods", "create pods/binding"
POD_STATUS = "patch pods/status"


class Stage(StrEnum):
    """The stages of a request, in this order."""

    MARKED = "marked unschedulable"
    NOMINATED = "nominated"
    DELETED = "victim deleted"
    GONE = "victim gone"
    BOUND = "bound"


@dataclass(frozen=True, slots=True)
class Request:
    """A request for `gpus` GPUs in `pods` pods: seconds since `created` of the writes of each stage.

    `evicted` are the GPUs of pods of jobs that were deleted for the request, and `evicted_besides` the GPUs of pods
    that were deleted for others meanwhile (see `victims`).
    """

    pods: int
    gpus: int
    created: float
    stages: Mapping[Stage, Sequence[float]]
    evicted: int
    evicted_besides: int = 0

    @property
    def bound(self) -> int:
        """The number of pods that have a node."""
        return len(self.stages[Stage.BOUND])

    @property
    def seconds(self) -> float | None:
        """The seconds from the request to the last pod's node; None if some have none."""
        return max(self.stages[Stage.BOUND]) if self.bound == self.pods else None

    def parts(self) -> dict[Stage, float]:
        """The seconds that each stage took after the previous one, without stages that did not happen.

        For victims the first deletion and the last removal count, for all other stages the first write.
        """
        moments = {
            stage: (max if stage in (Stage.GONE, Stage.BOUND) else min)(times)
            for stage, times in self.stages.items()
            if times
        }
        ends = [0.0, *moments.values()]
        return {stage: end - begin for stage, (begin, end) in zip(moments, pairwise(ends), strict=True)}


def request(
    writes: Iterable[Write],
    *,
    created: float,
    until: float = float("inf"),
    asks: Callable[[str], bool],
    pods: int,
    gpus: int,
) -> Request:
    """The request of `pods` pods, those whose names `asks` knows, of `gpus` GPUs in all.

    `writes` are in the order of their answers. Those that were answered before `created` or after `until` are skipped,
    so that later evictions do not count for this request. Every pod of a job has one GPU.
    """
    stages: dict[Stage, list[float]] = {stage: [] for stage in Stage}
    seen: set[tuple[Stage, str]] = set()
    for write in writes:
        stage = _stage_of(write, asks) if created <= write.done <= until else None
        if write.what == CREATE:
            # A victim that is created again can be evicted again.
            seen -= {(Stage.DELETED, write.name), (Stage.GONE, write.name)}
        if stage and (stage, write.name) not in seen:
            seen.add((stage, write.name))
            stages[stage].append(write.done - created)
    return Request(pods, gpus, created, stages, evicted=len(stages[Stage.DELETED]))


def _stage_of(write: Write, asks: Callable[[str], bool]) -> Stage | None:
    if write.what == DELETE and not asks(write.name):
        return Stage.GONE if write.user == KUBELETS else Stage.DELETED
    if write.what == BIND and asks(write.name):
        return Stage.BOUND
    if write.what == POD_STATUS and asks(write.name):
        return {SCHEDULER: Stage.MARKED, OPERATOR: Stage.NOMINATED}.get(write.user)
    return None


def ratio(requests: Iterable[Request]) -> float:
    """The ratio of evicted to requested GPUs, of all requests together."""
    made = list(requests)
    return sum(each.evicted for each in made) / sum(each.gpus for each in made)
