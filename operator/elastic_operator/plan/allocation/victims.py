"""The victims of one pass: which pods are preempted for which preemptors, and whether the limits on evictions allow it
(138).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial

from elastic_operator.plan.allocation.entry import Entry, Victim
from elastic_operator.plan.allocation.eviction_limits import EvictionCount, OverLimit, over_limit, preemptor_of
from elastic_operator.plan.allocation.journal import Journal
from elastic_operator.plan.facts.snapshot import EvictionLimits, Member


class Victims:
    """The pods that were preempted in one pass.

    `pods`: by uid, each preempted pod with its last preemptor. `evictions` counts the evicted ones among them: not
    those that their victim jobs keep after all. `over_limit`: preemptors for which a limit on evictions allows no more.
    `known_preemptors`: uids of preemptors for which pods were evicted within the last minute, or for which a part of a
    limit is kept.

    Args:
        keeps: Whether that job keeps that pod now.
    """

    def __init__(self, journal: Journal, limits: EvictionLimits, *, keeps: Callable[[Entry, Member], bool]) -> None:
        self._journal, self._limits, self._keeps = journal, limits, keeps
        self.pods: dict[str, Victim] = {}
        self.evictions = EvictionCount(limits.evicted_last_minute)
        self.over_limit: dict[Entry, OverLimit] = {}
        self.known_preemptors = frozenset(
            preemptor.uid for preemptor in (*self.evictions.recent_preemptors, limits.longest_waiting) if preemptor
        )

    def note(self, victim_job: Entry, members: Iterable[Member], preemptor: Entry) -> None:
        """Record that these members of the victim job are preempted for `preemptor`."""
        if victim_job is preemptor:
            return
        self._journal.set(
            victim_job, "times_preempted", victim_job.times_preempted + (victim_job.team != preemptor.team)
        )
        self._journal.set(victim_job, "preemptors", tuple(dict.fromkeys((*victim_job.preemptors, preemptor))))
        self._attribute([Victim(victim_job, pod, preemptor) for pod in members], preemptor)

    def changed(self, uid: str, *, evicted: bool) -> None:
        """Count a pod as evicted (`evicted`) or as kept after all. No effect if nobody preempted the pod."""
        if uid in self.pods:
            self._count(self.pods[uid], evicted=evicted)

    def standing(self) -> Iterator[Victim]:
        """The pods that are preempted for another entry."""
        return (one for one in self.pods.values() if not self._keeps(one.victim_job, one.pod))

    def note_given_back(self, entry: Entry) -> None:
        """Record that the entry keeps its own pods after all. The pods that it had preempted are now evicted for its
        preemptors.
        """
        took = entry.victims
        self._journal.set(entry, "victims", ())
        for one in took:
            node = one.victim_job.node_of.get(one.pod.uid)
            there = [
                preemptor for preemptor in entry.preemptors if node in preemptor.occupied_nodes
            ] or entry.preemptors
            others = [preemptor for preemptor in one.victim_job.preemptors if preemptor is not entry]
            self._journal.set(one.victim_job, "preemptors", tuple(dict.fromkeys((*others, *there))))
            for preemptor in there:
                self._attribute([one], preemptor)

    def pass_on(self, preemptor: Entry, node: int, new_preemptor: Entry, *, gpus: int) -> bool:
        """Make the heir the preemptor of the pods on that node that were preempted for `gpus` GPUs: the heir has the
        room now.

        False if the limits allow fewer evictions for the heir; the caller then rolls back.
        """
        lacking, passed, rest = gpus, list[Victim](), list[Victim]()
        for one in preemptor.victims:
            is_there = one.victim_job.node_of.get(one.pod.uid) == node and one.victim_job is not new_preemptor
            if is_there and lacking > 0 and not self._keeps(one.victim_job, one.pod):
                passed.append(one)
                lacking -= one.pod.gpus
            else:
                rest.append(one)
        self._journal.set(preemptor, "victims", tuple(rest))
        for one in passed:
            is_left = any(left.victim_job is one.victim_job for left in rest)
            others = [other for other in one.victim_job.preemptors if other is not preemptor or is_left]
            self._journal.set(one.victim_job, "preemptors", tuple(dict.fromkeys((*others, new_preemptor))))
            self._attribute([one], new_preemptor)
        return over_limit(self._limits, new_preemptor, self.evictions, len(passed), waits=False) is None

    def limits_on(self, preemptor: Entry) -> Hashable:
        """A key of everything that decides whether a limit on evictions stops this preemptor, apart from what is equal
        for its whole team.
        """
        waits = self._waits_behind(preemptor)
        if not (preemptor.victims or preemptor.gang or preemptor.demand.uid in self.known_preemptors):
            return waits
        who = preemptor_of(preemptor)
        return waits, self.evictions.of(who), who in self.evictions.recent_preemptors, self._limits.withheld_from(who)

    # -- limits --------------------------------------------------------------------------------------------------------

    def is_over_limit(self, preemptor: Entry, pods: Iterable[str]) -> bool:
        """Whether a limit on evictions forbids the eviction of these pods (uids) for the preemptor. Remembered until
        the preemptor is served after all.
        """
        wanted = len(self.evictions.evicted.keys() & set(pods))
        if not wanted:
            return False
        found = over_limit(self._limits, preemptor, self.evictions, wanted, waits=self._waits_behind(preemptor))
        if found is not None:
            self.over_limit[preemptor] = found
        return found is not None

    def _waits_behind(self, preemptor: Entry) -> bool:
        """Whether an entry of the preemptor's team that ranks before the preemptor waits for a limit on evictions.

        Else small preemptors would use up the limit each minute, and a large one would never pass (138).
        """
        ahead = (entry for entry, one in self.over_limit.items() if not one.needs_higher_limit)
        team = preemptor_of(preemptor).team
        return any(not one.served and one.rank < preemptor.rank and preemptor_of(one).team == team for one in ahead)

    # -- preemptors and their victims ----------------------------------------------------------------------------------

    def _attribute(self, taken: Iterable[Victim], preemptor: Entry) -> None:
        """Make that entry the preemptor of these pods."""
        taken = tuple([one._replace(preemptor=preemptor) for one in taken])
        self._journal.set(preemptor, "victims", (*preemptor.victims, *taken))
        for one in taken:
            change = partial(self._set, one.pod.uid)
            self._journal.do(partial(change, one), undo=partial(change, self.pods.get(one.pod.uid)))

    def _set(self, uid: str, taken: Victim | None) -> None:
        if taken is None:
            del self.pods[uid]
            self.evictions.put(uid, None)
            return
        self.pods[uid] = taken
        self._count(taken, evicted=not self._keeps(taken.victim_job, taken.pod))

    def _count(self, taken: Victim, *, evicted: bool) -> None:
        """Count the pod if its deletion is an eviction."""
        is_eviction = evicted and taken.victim_job.is_eviction_by(taken.preemptor)
        self.evictions.put(taken.pod.uid, preemptor_of(taken.preemptor) if is_eviction else None)
