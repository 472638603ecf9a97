"""The units that may be preempted under one account, the weakest first, listed once for all preemptions from it.

While units are preempted, the order of two units changes only if the share values of their teams change. So units whose
order cannot change are in one heap, and only the first units of the heaps are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from elastic_operator.plan.allocation.accounts import Account
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.preemption.candidates import (
    Candidates,
    UnitKind,
    VictimUnit,
    unit_order,
    victim_order,
)
from elastic_operator.plan.allocation.preemption.rules import PreemptionCheck


class _Listed(NamedTuple):
    """A unit in a heap: ordered by its key, and equal keys in the order of listing."""

    key: tuple[float, ...]
    place: int
    unit: VictimUnit


_Heaps = dict[tuple[Account | None, int, bool, bool], list[_Listed]]
"""Heaps by account, GPUs of the unit, whether these are not yet held (166), and whether a running job ends (150).
`Candidates.may_be_preempted` has one answer for all units of a heap.
"""


class VictimQueue:
    """The units to preempt, the weakest first. The caller preempts each unit before it takes the next one."""

    def __init__(self, candidates: Candidates, account: Account) -> None:
        self._candidates = candidates
        self._singles: _Heaps = {}
        self._wholes: _Heaps = {}
        self._current: dict[Entry, VictimUnit | None] = {}
        """For each job, the unit of all its pods as it is listed in `_wholes`."""
        self._gone: set[Entry] = set()
        self._places = count()
        self._unlisted = dict.fromkeys(candidates.below_account(account))
        """Jobs whose unit of all pods is not listed as it is now. Such a unit is listed when no single pod may be
        preempted.
        """
        for entry in self._unlisted:
            self._list(self._singles, candidates.single_pods(entry))

    def take_weakest(self, check: PreemptionCheck) -> VictimUnit | None:
        """The weakest unit that may be preempted; None if there is none."""
        return self._take(self._singles, check) or self._take(self._listed_wholes(), check)

    def _listed_wholes(self) -> _Heaps:
        unlisted, self._unlisted = self._unlisted, {}
        for entry in unlisted:
            if entry not in self._gone:
                whole = self._current[entry] = self._candidates.whole_job(entry)
                self._list(self._wholes, [whole] if whole else [])
        return self._wholes

    def _list(self, heaps: _Heaps, units: Iterable[VictimUnit]) -> None:
        for unit in units:
            order = victim_order(unit.entry, whole=unit.whole)
            kind = unit.not_yet_held, unit.kind is UnitKind.JOB
            heap = heaps.setdefault((unit.entry.account, unit.gpus, *kind), [])
            heappush(heap, _Listed((unit.kind, *order, *unit.order_in_job), next(self._places), unit))

    def _take(self, heaps: _Heaps, check: PreemptionCheck) -> VictimUnit | None:
        heads = [heap for heap in map(self._without_stale, heaps.values()) if heap]
        able = [heap for heap in heads if self._candidates.may_be_preempted(heap[0].unit, check)]
        if not able:
            return None
        unit = heappop(min(able, key=lambda heap: (unit_order(heap[0].unit, check), heap[0].place))).unit
        if unit.whole:
            self._gone.add(unit.entry)
        else:
            self._unlisted[unit.entry] = None
        return unit

    def _without_stale(self, heap: list[_Listed]) -> list[_Listed]:
        while heap and (
            (unit := heap[0].unit).entry in self._gone or (unit.whole and self._current[unit.entry] is not unit)
        ):
            heappop(heap)
        return heap
