"""Jobs that may grow, by team and by what they ask for next: where one of a group finds no room, none of it does.

So a pass over a full cluster tries one job of each group, not all of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Set

from elastic_operator.plan.accounts import Account
from elastic_operator.plan.claim import Claim

Turn = tuple[bool, int, int, float, str]
Entry = tuple[Turn, Claim]
Groups = dict[Hashable, list[Entry]]


def turn(claim: Claim) -> Turn:
    """Between two sizes first, then least beyond the minimum; ties do not depend on who runs already."""
    job = claim.job
    return claim.size in job.sizes, claim.size - claim.minimum, -job.priority, job.created, job.uid


def next_ask(claim: Claim, now: float) -> Hashable:
    """What its next size asks for; alike for jobs that all may grow, or none. One that must wait stands for itself."""
    job = claim.job
    waits = max(job.grow_after, job.failed_until, job.takes_from) > now
    if claim.gives or claim.losses or waits or claim.delayed_at(claim.next_size or 0, now):
        return job.uid
    return claim.master, claim.worker, claim.missing(claim.next_size or 0), job.preemptible, claim.takes(now)


class Growers:
    """The jobs that may grow, each in its group, in the order in which they do."""

    def __init__(self) -> None:
        self._groups: dict[Account | None, Groups] = {}
        self._places: dict[Claim, tuple[Hashable, Turn]] = {}

    def add(self, claim: Claim, now: float) -> None:
        """Put one in."""
        key, place = next_ask(claim, now), turn(claim)
        self._places[claim] = key, place
        insort(self._groups.setdefault(claim.account, {}).setdefault(key, []), (place, claim), key=_place)

    def discard(self, claim: Claim) -> None:
        """Take one out, if it is in."""
        if claim not in self._places:
            return
        key, place = self._places.pop(claim)
        groups = self._groups[claim.account]
        group = groups[key]
        del group[bisect_left(group, place, key=_place)]
        if not group:
            del groups[key]

    def accounts(self) -> Iterable[Account | None]:
        """Those with any."""
        return (account for account, groups in self._groups.items() if groups)

    def queue(self, account: Account | None, touched: Set[Claim]) -> Queue:
        """Those of one account, to be worked through."""
        return Queue(self._groups.get(account, {}), touched)


class Queue:
    """The jobs of one account in their order, while they grow. Those that a pass has `touched` stand for themselves."""

    def __init__(self, groups: Groups, touched: Set[Claim]) -> None:
        self._groups = {key: iter(group) for key, group in groups.items()}
        self._heads: dict[Hashable, Entry] = {}
        self._touched = touched
        self._again: set[Claim] = set()
        for key in groups:
            self._advance(key)

    def add(self, claim: Claim) -> None:
        """A job that was touched; once more if it is in it already."""
        self._again.add(claim)
        if may_grow(claim):
            key = "touched", claim.job.uid
            self._groups[key] = iter([(turn(claim), claim)])
            self._advance(key)

    def first(self) -> tuple[Hashable, Claim] | None:
        """The next job, and its group."""
        while self._heads:
            key = min(self._heads, key=lambda key: self._heads[key][0])
            claim = self._heads[key][1]
            if claim not in self._touched or key == ("touched", claim.job.uid):
                return key, claim
            self._advance(key)
            if claim not in self._again:
                self.add(claim)
        return None

    def grew(self, key: Hashable, claim: Claim) -> None:
        """The first of the group has grown; it may go on."""
        self._advance(key)
        self.add(claim)

    def give_up(self, key: Hashable) -> None:
        """Nobody of the group gets anything."""
        del self._heads[key], self._groups[key]

    def _advance(self, key: Hashable) -> None:
        entry: Entry | None = next(self._groups[key], None)
        if entry is None:
            self._heads.pop(key, None)
        else:
            self._heads[key] = entry


def may_grow(claim: Claim) -> bool:
    """Whether it has its minimum, and larger sizes are left."""
    return claim.served and bool(claim.sizes) and claim.next_size is not None


def _place(entry: Entry) -> Turn:
    return entry[0]
