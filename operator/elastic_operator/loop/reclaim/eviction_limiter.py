"""Decides from the mode, the pause and the limits whether pods of others may be evicted, and how many within a minute
(43, 138).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import takewhile
from math import inf
from typing import NamedTuple

from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.eviction_limits import EVICTION_SECONDS, EvictionLimit, EvictionLimits, PreemptorKey
from elastic_operator.plan.facts.text import Reason
from elastic_operator.settings import ReclaimMode, ReclaimSettings


class LastMinute:
    """The evictions of the last minute: the pods and their preemptors (138)."""

    def __init__(self) -> None:
        self._evicted: dict[str, tuple[float, PreemptorKey]] = {}
        """The evicted pods in the order of their evictions."""

    def count(self, going: Mapping[str, PreemptorKey]) -> int:
        """Count these pods (uids) as evicted now; returns how many of them were not counted before."""
        self._forget_old()
        now, before = time.monotonic(), len(self._evicted)
        for pod, preemptor in going.items():
            self._evicted.pop(pod, None)
            self._evicted[pod] = now, preemptor
        return len(self._evicted) - before

    def evicted(self) -> Mapping[str, PreemptorKey]:
        """The pods evicted within the last minute, each with its preemptor."""
        self._forget_old()
        return {pod: preemptor for pod, (_, preemptor) in self._evicted.items()}

    def seconds_until_relief(self) -> float:
        """Seconds until the first of these evictions counts no more; infinity without evictions."""
        first = next(iter(self._evicted.values()), None)
        return max(0.0, first[0] + EVICTION_SECONDS - time.monotonic()) if first else inf

    def _forget_old(self) -> None:
        end = time.monotonic() - EVICTION_SECONDS
        for pod in [*takewhile(lambda pod: self._evicted[pod][0] <= end, self._evicted)]:
            del self._evicted[pod]


class _Waiting(NamedTuple):
    """A preemptor that the limit stops: when (monotonic) its wait began, and the number of pods to evict."""

    since: float
    pods: int


class EvictionLimiter:
    """The evictions that the settings allow, given those of the last minute. `count_evicted` is called with the number
    of newly evicted pods.
    """

    def __init__(self, settings: ReclaimSettings, *, count_evicted: Callable[[int], object] = lambda _: None) -> None:
        self._settings, self._count_evicted = settings, count_evicted
        self._last_minute = LastMinute()
        self._waiting: dict[PreemptorKey, _Waiting] = {}
        """The preemptors that the cluster's limit stops, although the limit allows each preemptor alone. The one that
        has waited longest is first. Also among those that began to wait in one pass, the turn must not move.
        """

    @property
    def stopped(self) -> Reason | None:
        """Why no pods are evicted now; None if pods may be evicted."""
        if self._settings.paused:
            return Reason("Paused", "No GPUs are reclaimed: reclaim.paused is set in the operator's settings.")
        if self._settings.mode is not ReclaimMode.ON:
            text = f"No GPUs are reclaimed: reclaim.mode is {self._settings.mode} in the operator's settings."
            return Reason(str(self._settings.mode), text)
        return None

    @property
    def is_report_only(self) -> bool:
        """Whether evictions are only reported (DryRun)."""
        return self._settings.mode is ReclaimMode.DRY_RUN and not self._settings.paused

    def eviction_limits(self, gpus: int) -> EvictionLimits:
        """The limits in a cluster with that many GPUs."""
        first, kept = self._longest_waiting()
        limits = self._settings.most_evictions(gpus)
        return EvictionLimits(
            *limits,
            evicted_last_minute=self._last_minute.evicted(),
            configured=_configured(self._settings),
            longest_waiting=first,
            reserved_evictions=kept,
        )

    def _longest_waiting(self) -> tuple[PreemptorKey | None, int]:
        """The preemptor for which the cluster's limit is reserved, because it has waited longest, and for more than a
        minute; and the number of pods to evict for it. None and 0 if no preemptor has waited for so long.
        """
        first = next(iter(self._waiting), None)
        if first is None or time.monotonic() < self._waiting[first].since + EVICTION_SECONDS:
            return None, 0
        return first, self._waiting[first].pods

    def seconds_until_capacity(self, allocation: Allocation) -> float:
        """Record which preemptors wait, and return the seconds until the limits allow more evictions to one of them;
        infinity if no entry waits, or if time alone allows no more.

        0 if the next allocation would reserve evictions for another preemptor than this one did, as when the first one
        was served or suspended. This ends: one that waits no more has another turn after a minute at the earliest.
        """
        self._note_waiting(allocation)
        if not allocation.over_eviction_limit:
            return inf
        if self._longest_waiting()[0] != allocation.inputs.eviction_limits.longest_waiting:
            return 0.0
        turns = (one.since + EVICTION_SECONDS - time.monotonic() for one in self._waiting.values())
        return min(self._last_minute.seconds_until_relief(), *(turn for turn in turns if turn > 0), inf)

    def note_evictions(self, pods: Mapping[str, PreemptorKey]) -> None:
        """Count these pods (uids) as evicted."""
        self._count_evicted(self._last_minute.count(pods))

    def _note_waiting(self, allocation: Allocation) -> None:
        """Record which preemptors wait. A preemptor whose turn it is keeps the turn until its pods are evicted."""
        wanted = {
            one.preemptor: one.hit.wanted
            for one in allocation.over_eviction_limit
            if one.hit.exceeded is EvictionLimit.PER_CLUSTER and not (one.hit.needs_higher_limit or one.hit.is_behind)
        }
        served = self._waiting.keys() - wanted.keys()
        keep_turn = served.intersection(allocation.evicted_for.values()) if served else served
        now, before = time.monotonic(), self._waiting
        self._waiting = {
            preemptor: _Waiting(wait.since, wanted.get(preemptor, wait.pods))
            for preemptor, wait in before.items()
            if preemptor in wanted or preemptor in keep_turn
        }
        self._waiting |= {one: _Waiting(now, pods) for one, pods in wanted.items() if one not in before}


def _configured(settings: ReclaimSettings) -> frozenset[EvictionLimit]:
    """The limits that the settings have."""
    per_team = (EvictionLimit.PER_TEAM, settings.max_evictions_per_decision)
    per_cluster = (EvictionLimit.PER_CLUSTER, settings.max_evictions_per_minute)
    return frozenset(name for name, limit in (per_team, per_cluster) if limit is not None)
