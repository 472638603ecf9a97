"""The victims of one pass: which pods go for which takers, and whether the limits on evictions let them (138)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial

from elastic_operator.plan.allocation.entry import Entry, Victim
from elastic_operator.plan.allocation.eviction_limits import EvictionCount, OverLimit, over_limit, taker_of
from elastic_operator.plan.allocation.journal import Journal
from elastic_operator.plan.facts.snapshot import EvictionLimits, Member


class Victims:
    """The pods that were preempted in one pass.

    `pods`: by uid, each preempted pod with its last taker. `evictions` counts those that their givers do not keep after
    all. `over_limit`: takers for which a limit on evictions allows no more. `known_takers`: uids of takers for which
    pods were evicted within the last minute, or for which a part of a limit is kept.

    Args:
        keeps: Whether that job keeps that pod now.
    """

    def __init__(self, journal: Journal, limits: EvictionLimits, *, keeps: Callable[[Entry, Member], bool]) -> None:
        self._journal, self._limits, self._keeps = journal, limits, keeps
        self.pods: dict[str, Victim] = {}
        self.evictions = EvictionCount(limits.gone)
        self.over_limit: dict[Entry, OverLimit] = {}
        self.known_takers = frozenset(taker.uid for taker in (*self.evictions.going_on, limits.first) if taker)

    def note(self, giver: Entry, members: Iterable[Member], taker: Entry) -> None:
        """Record that `taker` took these members of the giver."""
        if giver is taker:
            return
        self._journal.set(giver, "times_preempted", giver.times_preempted + (giver.team != taker.team))
        self._journal.set(giver, "takers", tuple(dict.fromkeys((*giver.takers, taker))))
        self._attribute([Victim(giver, pod, taker) for pod in members], taker)

    def changed(self, uid: str, *, goes: bool) -> None:
        """Count a pod as evicted (`goes`) or as kept after all. Without effect for a pod that nobody preempted."""
        if uid in self.pods:
            self._count(self.pods[uid], goes=goes)

    def going(self) -> Iterator[Victim]:
        """The pods that go for somebody else."""
        return (one for one in self.pods.values() if not self._keeps(one.giver, one.pod))

    def note_given_back(self, entry: Entry) -> None:
        """Record that the entry keeps its own pods after all. The pods that it had preempted are now evicted for its
        takers.
        """
        took = entry.took
        self._journal.set(entry, "took", ())
        for one in took:
            node = one.giver.at.get(one.pod.uid)
            there = [taker for taker in entry.takers if node in taker.near] or entry.takers
            others = [taker for taker in one.giver.takers if taker is not entry]
            self._journal.set(one.giver, "takers", tuple(dict.fromkeys((*others, *there))))
            for taker in there:
                self._attribute([one], taker)

    def pass_on(self, taker: Entry, node: int, heir: Entry, *, gpus: int) -> bool:
        """Attribute the pods on that node that were taken for `gpus` GPUs of the taker to the heir, which has the room.

        False if the limits let fewer pods go for the heir; the caller then rolls back.
        """
        lacking, passed, rest = gpus, list[Victim](), list[Victim]()
        for one in taker.took:
            is_there = one.giver.at.get(one.pod.uid) == node and one.giver is not heir
            if is_there and lacking > 0 and not self._keeps(one.giver, one.pod):
                passed.append(one)
                lacking -= one.pod.gpus
            else:
                rest.append(one)
        self._journal.set(taker, "took", tuple(rest))
        for one in passed:
            is_left = any(left.giver is one.giver for left in rest)
            others = [other for other in one.giver.takers if other is not taker or is_left]
            self._journal.set(one.giver, "takers", tuple(dict.fromkeys((*others, heir))))
            self._attribute([one], heir)
        return over_limit(self._limits, heir, self.evictions, len(passed), waits=False) is None

    def goes_on(self, taker: Entry) -> bool:
        """Whether pods were deleted for the taker within the last minute."""
        return bool(self.evictions.going_on) and taker_of(taker) in self.evictions.going_on

    def limits_on(self, taker: Entry) -> Hashable:
        """What the limits on evictions hold against this taker, or for it, beside what they hold against its team."""
        waits = self._waits_behind(taker)
        if not (taker.took or taker.gang or taker.demand.uid in self.known_takers):
            return waits
        who = taker_of(taker)
        return waits, self.evictions.of(who), who in self.evictions.going_on, self._limits.kept_from(who)

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

    def _attribute(self, taken: Iterable[Victim], taker: Entry) -> None:
        """Have these pods go for that taker."""
        taken = tuple([one._replace(taker=taker) for one in taken])
        self._journal.set(taker, "took", (*taker.took, *taken))
        for one in taken:
            change = partial(self._set, one.pod.uid)
            self._journal.do(partial(change, one), undo=partial(change, self.pods.get(one.pod.uid)))

    def _set(self, uid: str, taken: Victim | None) -> None:
        if taken is None:
            del self.pods[uid]
            self.evictions.put(uid, None)
            return
        self.pods[uid] = taken
        self._count(taken, goes=not self._keeps(taken.giver, taken.pod))

    def _count(self, taken: Victim, *, goes: bool) -> None:
        """Count the pod if its deletion is an eviction."""
        is_eviction = goes and taken.giver.is_foreign(taken.taker)
        self.evictions.put(taken.pod.uid, taker_of(taken.taker) if is_eviction else None)
