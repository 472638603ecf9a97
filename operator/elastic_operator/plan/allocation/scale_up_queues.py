"""Jobs that may grow, by team and by the needs of their next size.

The jobs of one group have equal needs. If one of them finds no room, none does. So a pass over a full cluster tries one
job of each group (38).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Set
from math import inf
from operator import attrgetter
from typing import NamedTuple

from elastic_operator.plan.allocation.accounts import Account
from elastic_operator.plan.allocation.entry import Entry

ScaleUpOrder = tuple[bool, int, int, float, str]


class _Ordered(NamedTuple):
    order: ScaleUpOrder
    entry: Entry


_Groups = dict[Hashable, list[_Ordered]]
_by_order = attrgetter("order")


def scale_up_order(entry: Entry) -> ScaleUpOrder:
    """Sort key of growth: jobs between two allowed sizes first, then the jobs that are least above their minimum.
    Whether a job runs already does not matter.
    """
    demand = entry.demand
    return entry.size in demand.sizes, entry.size - entry.demand.minimum, -demand.priority, demand.created, demand.uid


def growth_key(entry: Entry, now: float) -> Hashable:
    """The key of jobs that need the same for their next size. It holds for many passes (`equivalence`)."""
    demand, next_size = entry.demand, entry.next_size or 0
    waits = demand.may_grow_at > now or now < demand.bar.until < inf or now < demand.grow_at(next_size)
    has_failed = demand.failed is not None and demand.failed.until > now
    if waits or has_failed or demand.provisioning_pods or entry.loses_members or entry.times_preempted:
        return demand.uid
    return entry.equivalence_class, entry.missing(next_size), now >= demand.bar.until


class ScaleUpQueues:
    """The jobs that may grow, in their groups, in the order in which they grow."""

    def __init__(self) -> None:
        self._groups: dict[Account | None, _Groups] = {}
        self._orders: dict[Entry, tuple[Hashable, ScaleUpOrder]] = {}

    def add(self, entry: Entry, now: float) -> None:
        key, order = growth_key(entry, now), scale_up_order(entry)
        self._orders[entry] = key, order
        insort(self._groups.setdefault(entry.account, {}).setdefault(key, []), _Ordered(order, entry), key=_by_order)

    def discard(self, entry: Entry) -> None:
        """Remove a job, if it has a group."""
        if entry not in self._orders:
            return
        key, order = self._orders.pop(entry)
        groups = self._groups[entry.account]
        group = groups[key]
        del group[bisect_left(group, order, key=_by_order)]
        if not group:
            del groups[key]

    def by_account(self, changed: Set[Entry]) -> dict[Account | None, ScaleUpQueue]:
        """The jobs of each account, to be worked through."""
        return {account: ScaleUpQueue(groups, changed) for account, groups in self._groups.items() if groups}


class ScaleUpQueue:
    """The jobs of one account in their order, while they grow.

    A job that the pass has `changed`, or that is added, forms a group of its own.
    """

    def __init__(self, groups: _Groups, changed: Set[Entry]) -> None:
        self._groups = {key: iter(group) for key, group in groups.items()}
        self._heads: dict[Hashable, _Ordered] = {}
        self._changed = changed
        self._alone: set[Entry] = set()
        self.has_given_up = False
        """Whether a job could not grow."""
        for key in groups:
            self._advance(key)

    def add(self, entry: Entry) -> None:
        """Add the job as a group of its own; a second call moves it to its new turn."""
        self._alone.add(entry)
        if entry.admitted and entry.next_size is not None:
            key = "alone", entry.demand.uid
            self._groups[key] = iter([_Ordered(scale_up_order(entry), entry)])
            self._advance(key)

    def first(self) -> tuple[Hashable, Entry] | None:
        """The next job, and its group."""
        while self._heads:
            key = min(self._heads, key=lambda key: self._heads[key].order)
            entry = self._heads[key].entry
            if key == ("alone", entry.demand.uid) or not (entry in self._changed or entry in self._alone):
                return key, entry
            self._advance(key)
            if entry not in self._alone:
                self.add(entry)
        return None

    def grew(self, key: Hashable, entry: Entry) -> None:
        """Note that the first job of the group has grown. It may grow again."""
        self._advance(key)
        self.add(entry)

    def give_up(self, key: Hashable, entry: Entry) -> None:
        """Drop the first job of the group, because it cannot grow, and the jobs that rank after it, because they cannot
        grow either. Jobs that rank before it may still grow: fewer jobs wait before them for a limit on evictions.
        """
        self.has_given_up = True
        while key in self._heads and self._heads[key].entry.position >= entry.position:
            self._advance(key)

    def _advance(self, key: Hashable) -> None:
        placed: _Ordered | None = next(self._groups[key], None)
        if placed is None:
            self._heads.pop(key, None)
        else:
            self._heads[key] = placed
