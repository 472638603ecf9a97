"""The preemptions of one pass: which pods go for which takers, and whether the limits on evictions let them (138)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.eviction_limits import EvictionCount, OverLimit, over_limit, taker_of
from elastic_operator.plan.allocation.journal import Journal
from elastic_operator.plan.facts.snapshot import EvictionLimits, Member


class Preemptions:
    """The pods of jobs that were preempted in one pass.

    `pods` maps each of them (uid) to its giver, the pod, and the last taker. Its giver may keep it after all:
    `evictions` counts those that go. `over_limit` has the takers that a limit on evictions allows no more.
    `known_takers` are the uids of takers for which pods went lately, or for which a part of a limit is kept.

    Args:
        keeps: Whether that job keeps that pod now.
    """

    def __init__(self, journal: Journal, limits: EvictionLimits, *, keeps: Callable[[Entry, Member], bool]) -> None:
        self._journal, self._limits, self._keeps = journal, limits, keeps
        self.pods: dict[str, tuple[Entry, Member, Entry]] = {}
        self.evictions = EvictionCount(limits.gone)
        self.over_limit: dict[Entry, OverLimit] = {}
        self.known_takers = frozenset(taker.uid for taker in (*self.evictions.going_on, limits.first) if taker)

    def note(self, giver: Entry, members: Iterable[Member], taker: Entry) -> None:
        """Record that `taker` took these members of the giver."""
        if giver is taker:
            return
        self._journal.set(giver, "times_preempted", giver.times_preempted + (giver.team != taker.team))
        self._journal.set(giver, "takers", tuple(dict.fromkeys((*giver.takers, taker))))
        more = tuple((giver, member) for member in members)
        self._journal.set(taker, "took", (*taker.took, *more))
        for _, member in more:
            self._attribute(giver, member, taker)

    def changed(self, uid: str, *, goes: bool) -> None:
        """A pod is released, or kept after all: count it accordingly if it was taken."""
        if uid in self.pods:
            self._count(uid, goes=goes)

    def going(self) -> Iterator[tuple[str, Entry, Entry]]:
        """Yield each pod (uid) that goes for somebody else, with its giver and its taker."""
        for uid, (giver, member, taker) in self.pods.items():
            if not self._keeps(giver, member):
                yield uid, giver, taker

    def note_given_back(self, entry: Entry) -> None:
        """Record that the entry has got back what it had: the pods that it took now go for those that took from it."""
        took = entry.took
        self._journal.set(entry, "took", ())
        for giver, member in took:
            there = [taker for taker in entry.takers if giver.at.get(member.uid) in taker.near] or entry.takers
            others = [taker for taker in giver.takers if taker is not entry]
            self._journal.set(giver, "takers", tuple(dict.fromkeys((*others, *there))))
            for taker in there:
                self._journal.set(taker, "took", (*taker.took, (giver, member)))
                self._attribute(giver, member, taker)

    def pass_on(self, taker: Entry, node: int, heir: Entry, *, gpus: int) -> bool:
        """Attribute the pods on that node that were taken for `gpus` GPUs of the taker to the heir, which has the room.

        False if the limits let fewer pods go for the heir; the caller then rolls back.
        """
        lacking, passed, rest = gpus, [], []
        for giver, member in taker.took:
            is_there = giver.at.get(member.uid) == node and giver is not heir
            if is_there and lacking > 0 and not self._keeps(giver, member):
                passed.append((giver, member))
                lacking -= member.gpus
            else:
                rest.append((giver, member))
        self._journal.set(taker, "took", tuple(rest))
        for giver, member in passed:
            others = [one for one in giver.takers if one is not taker or any(left is giver for left, _ in rest)]
            self._journal.set(giver, "takers", tuple(dict.fromkeys((*others, heir))))
            self._journal.set(heir, "took", (*heir.took, (giver, member)))
            self._attribute(giver, member, heir)
        return over_limit(self._limits, heir, self.evictions, len(passed), waits=False) is None

    def goes_on(self, taker: Entry) -> bool:
        """Whether pods were deleted for the taker within the last minute."""
        return bool(self.evictions.going_on) and taker_of(taker) in self.evictions.going_on

    def limits_on(self, taker: Entry) -> Hashable:
        """What the limits on evictions hold against this taker, or for it, beside what they hold against its team."""
        if not (self.evictions.in_all or self._limits.first):
            return None
        who = taker_of(taker)
        return self.evictions.of(who), who in self.evictions.going_on, self._limits.kept_from(who)

    # -- limits --------------------------------------------------------------------------------------------------------

    def is_over_limit(self, taker: Entry, pods: Iterable[str]) -> bool:
        """Whether a limit on evictions forbids that these pods (uids) go for the taker. Remembered until the taker is
        served after all.
        """
        wanted = len(self.evictions.going.keys() & set(pods))
        if not wanted:
            return False
        found = over_limit(self._limits, taker, self.evictions, wanted, waits=self._waits_behind(taker))
        if found is not None:
            self.over_limit[taker] = found
        return found is not None

    def _waits_behind(self, taker: Entry) -> bool:
        """Whether an entry of the taker's team that ranks before the taker waits for a limit on evictions.

        Else small takers would use up the limit each minute, and a large one would never pass (138).
        """
        ahead = (entry for entry, one in self.over_limit.items() if not one.waits_for_a_person)
        team = taker_of(taker).team
        return any(not one.served and one.rank < taker.rank and taker_of(one).team == team for one in ahead)

    # -- who took which pod --------------------------------------------------------------------------------------------

    def _attribute(self, giver: Entry, member: Member, taker: Entry) -> None:
        change = partial(self._set, member.uid)
        self._journal.do(partial(change, (giver, member, taker)), undo=partial(change, self.pods.get(member.uid)))

    def _set(self, uid: str, taken: tuple[Entry, Member, Entry] | None) -> None:
        if taken is None:
            del self.pods[uid]
            self.evictions.put(uid, None)
            return
        self.pods[uid] = taken
        self._count(uid, goes=not self._keeps(taken[0], taken[1]))

    def _count(self, uid: str, *, goes: bool) -> None:
        """Count the pod if its deletion is an eviction."""
        giver, _, taker = self.pods[uid]
        self.evictions.put(uid, taker_of(taker) if goes and giver.is_foreign(taker) else None)
