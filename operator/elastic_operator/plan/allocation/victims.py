"""The pods preempted in one pass, for which preemptors, and whether the limits on evictions allow it (138)."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from functools import partial

from elastic_operator.plan.allocation.check_evictions import EvictionCount, EvictionLimitHit, check_limits, preemptor_of
from elastic_operator.plan.allocation.entry import Entry, Victim
from elastic_operator.plan.allocation.journal import Journal
from elastic_operator.plan.facts.demand import Member
from elastic_operator.plan.facts.eviction_limits import EvictionLimits


class Victims:
    """The pods that were preempted in one pass.

    `pods`: by uid, each preempted pod with its last preemptor. `evictions` counts those of them that are evicted; pods
    that their victim jobs keep after all are not. `over_eviction_limit`: the preemptors for which a limit on evictions
    allows no more. `known_preemptors`: the keys of the preemptors for which pods were evicted within the last minute,
    or for which a part of a limit is reserved.

    Args:
        residents: The members (uids) that jobs keep now, for each node by its number.
    """

    def __init__(self, journal: Journal, limits: EvictionLimits, residents: Sequence[Container[str]]) -> None:
        self._journal, self._limits, self._residents = journal, limits, residents
        self.pods: dict[str, Victim] = {}
        self.evictions = EvictionCount(limits.evicted_last_minute)
        self.over_eviction_limit: dict[Entry, EvictionLimitHit] = {}
        self.known_preemptors = frozenset(
            preemptor.key for preemptor in (*self.evictions.recent_preemptors, limits.longest_waiting) if preemptor
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
        return filter(self._stands, self.pods.values())

    def taken_for(self, preemptor: Entry) -> Iterator[Victim]:
        """The pods that are preempted for that entry."""
        return filter(self._stands, preemptor.victims)

    def _stands(self, victim: Victim) -> bool:
        """Whether the pod is still preempted: its victim job does not keep it after all."""
        entry, member = victim.victim_job, victim.pod
        node = entry.node_of.get(member.uid)
        return member.uid not in self._residents[node] if node is not None else member not in entry.kept

    def note_given_back(self, entry: Entry) -> None:
        """Record that the entry keeps its own pods. The pods that it had preempted are evicted for its preemptors."""
        victims_before = entry.victims
        self._journal.set(entry, "victims", ())
        for victim in victims_before:
            node = victim.victim_job.node_of.get(victim.pod.uid)
            new_preemptors = [
                preemptor for preemptor in entry.preemptors if node in preemptor.occupied_nodes
            ] or entry.preemptors
            others = [preemptor for preemptor in victim.victim_job.preemptors if preemptor is not entry]
            self._journal.set(victim.victim_job, "preemptors", tuple(dict.fromkeys((*others, *new_preemptors))))
            for preemptor in new_preemptors:
                self._attribute([victim], preemptor)

    def pass_on(self, preemptor: Entry, node: int, new_preemptor: Entry, *, gpus: int) -> bool:
        """Make `new_preemptor` the preemptor of pods on the node with `gpus` GPUs in all, because it has their room
        now.

        Returns False if the limits do not allow these evictions for `new_preemptor`; the caller then rolls back.
        """
        lacking, passed, remaining = gpus, list[Victim](), list[Victim]()
        for victim in preemptor.victims:
            is_on_node = (
                victim.victim_job.node_of.get(victim.pod.uid) == node and victim.victim_job is not new_preemptor
            )
            if is_on_node and lacking > 0 and self._stands(victim):
                passed.append(victim)
                lacking -= victim.pod.gpus
            else:
                remaining.append(victim)
        self._journal.set(preemptor, "victims", tuple(remaining))
        for victim in passed:
            keeps_preemptor = any(other_victim.victim_job is victim.victim_job for other_victim in remaining)
            others = [other for other in victim.victim_job.preemptors if other is not preemptor or keeps_preemptor]
            self._journal.set(victim.victim_job, "preemptors", tuple(dict.fromkeys((*others, new_preemptor))))
            self._attribute([victim], new_preemptor)
        return check_limits(self._limits, new_preemptor, self.evictions, len(passed), ahead=None) is None

    def limits_on(self, preemptor: Entry) -> Hashable:
        """The preemptor's part of a key: whether an eviction limit stops it. Team-wide facts are left out."""
        waits = self._ahead_of(preemptor) is not None
        if not (preemptor.victims or preemptor.gang or preemptor.demand.uid in self.known_preemptors):
            return waits
        who = preemptor_of(preemptor)
        return (
            waits,
            self.evictions.of_preemptor[who],
            who in self.evictions.recent_preemptors,
            self._limits.reserved_for_others_than(who),
        )

    # -- limits --------------------------------------------------------------------------------------------------------

    def note_if_over_eviction_limit(self, preemptor: Entry, pods: Iterable[str]) -> bool:
        """Whether a limit on evictions forbids the eviction of these pods (uids) for the preemptor. If so, the
        preemptor is over the limit until it gets its room in another way.
        """
        wanted = len(self.evictions.evicted.keys() & set(pods))
        if not wanted:
            return False
        found = check_limits(self._limits, preemptor, self.evictions, wanted, ahead=self._ahead_of(preemptor))
        if found is not None:
            self.over_eviction_limit[preemptor] = found
        return found is not None

    def _ahead_of(self, preemptor: Entry) -> EvictionLimitHit | None:
        """The refusal of an entry of the preemptor's team that ranks before the preemptor and waits for a limit on
        evictions; None if none waits.

        Without this, small preemptors would use up the limit each minute, and a large one would never be served (138).
        """
        team = preemptor_of(preemptor).team
        for other, step in self.over_eviction_limit.items():
            if step.needs_higher_limit or other.admitted or other.position >= preemptor.position:
                continue
            if preemptor_of(other).team == team:
                return step
        return None

    # -- preemptors and their victims ----------------------------------------------------------------------------------

    def _attribute(self, taken: Iterable[Victim], preemptor: Entry) -> None:
        """Make that entry the preemptor of these pods."""
        taken = tuple([victim._replace(preemptor=preemptor) for victim in taken])
        self._journal.set(preemptor, "victims", (*preemptor.victims, *taken))
        for victim in taken:
            change = partial(self._set, victim.pod.uid)
            self._journal.do(partial(change, victim), undo=partial(change, self.pods.get(victim.pod.uid)))

    def _set(self, uid: str, taken: Victim | None) -> None:
        if taken is None:
            del self.pods[uid]
            self.evictions.put(uid, None)
            return
        self.pods[uid] = taken
        self._count(taken, evicted=self._stands(taken))

    def _count(self, taken: Victim, *, evicted: bool) -> None:
        is_eviction = evicted and taken.victim_job.is_eviction_by(taken.preemptor)
        self.evictions.put(taken.pod.uid, preemptor_of(taken.preemptor) if is_eviction else None)
