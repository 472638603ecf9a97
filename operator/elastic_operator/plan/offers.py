"""What the jobs under one account give, the weakest first, listed once for all that is taken.

What makes one unit weaker than another does not change while units go, but for how far each team stands beyond its
share. So units are kept in heaps of those that stand or fall together, and only the heaps' first ones are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count

from elastic_operator.plan.accounts import Account
from elastic_operator.plan.claim import Claim
from elastic_operator.plan.entitle import Taking
from elastic_operator.plan.victims import Cost, Unit, Victims, strength

_Entry = tuple[tuple[float, ...], int, Unit]
"""What a unit is weak by, its place in the order in which units were listed, and the unit."""
_Heaps = dict[tuple[Account | None, int, bool, bool], list[_Entry]]
"""By whose they are, how many GPUs go, and whether they are only held, or a job that runs: `Victims.may_go` says the
same of all of a heap.
"""


class Offers:
    """Units that are taken one after the other; whoever takes one has it go before the next is asked for."""

    def __init__(self, victims: Victims, account: Account) -> None:
        self._victims = victims
        self._singles: _Heaps = {}
        self._wholes: _Heaps = {}
        self._current: dict[Claim, Unit | None] = {}
        """Each job's whole as it is in `_wholes`."""
        self._gone: set[Claim] = set()
        self._places = count()
        self._unlisted = dict.fromkeys(victims.under(account))
        """Jobs whose whole is not listed, or no longer as it is. They are listed when no single pod may go."""
        for claim in self._unlisted:
            self._list(self._singles, victims.singles(claim))

    def take_weakest(self, taking: Taking | None) -> Unit | None:
        """The weakest unit of those that may go; None if none may."""
        return self._take(self._singles, taking) or self._take(self._listed_wholes(), taking)

    def _listed_wholes(self) -> _Heaps:
        unlisted, self._unlisted = self._unlisted, {}
        for claim in unlisted:
            if claim not in self._gone:
                whole = self._current[claim] = self._victims.whole(claim)
                self._list(self._wholes, [whole] if whole else [])
        return self._wholes

    def _list(self, heaps: _Heaps, units: Iterable[Unit]) -> None:
        for unit in units:
            kind = unit.cost is Cost.HELD, unit.cost is Cost.JOB
            heap = heaps.setdefault((unit.claim.account, unit.gpus, *kind), [])
            heappush(heap, ((unit.cost, *unit.weakness), next(self._places), unit))

    def _take(self, heaps: _Heaps, taking: Taking | None) -> Unit | None:
        heads = [heap for heap in map(self._without_stale, heaps.values()) if heap]
        able = [heap for heap in heads if self._victims.may_go(heap[0][2], taking)]
        if not able:
            return None
        _, _, unit = heappop(min(able, key=lambda heap: (strength(heap[0][2], taking), heap[0][1])))
        if unit.whole:
            self._gone.add(unit.claim)
        else:
            self._unlisted[unit.claim] = None
        return unit

    def _without_stale(self, heap: list[_Entry]) -> list[_Entry]:
        while heap and self._is_stale(heap[0][2]):
            heappop(heap)
        return heap

    def _is_stale(self, unit: Unit) -> bool:
        return unit.claim in self._gone or (unit.whole and self._current[unit.claim] is not unit)
