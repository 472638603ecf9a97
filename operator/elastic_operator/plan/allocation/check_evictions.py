"""The limits on evictions: how many pods of others may be evicted within a minute, for one team and for all teams
(138).

A preemption that would exceed a limit is skipped, and the next preemptor is tried. So a team that grows, or that has
many small jobs, gets its GPUs in slices. All pods for a job's minimum are preempted together: if these are more than
the limit, the job waits until an administrator raises the limit.

A default limit never blocks a guarantee: each minute, one preemptor of each team may exceed the limit while the team
stays within its guarantee. If the cluster's limit stops a preemptor for more than a minute, the limit is reserved
for the first such preemptor, provided that the limit allows its preemption at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from elastic_api.status import SizeReason
from elastic_operator.plan.allocation.accounts import Entitlement
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.eviction_limits import EvictionLimit, EvictionLimits, PreemptorKey
from elastic_operator.plan.facts.text import Reason, pods


@dataclass(frozen=True, slots=True)
class EvictionLimitHit:
    """A preemption that a limit forbids: `wanted` more pods of others would be evicted for the preemptor.

    The limit `exceeded` allows `allowed` evictions within a minute, of which `left` are unused.
    """

    exceeded: EvictionLimit
    wanted: int
    allowed: int
    left: int
    needs_higher_limit: bool = False
    """Whether waiting does not help, because the limit itself is too low."""
    is_behind: bool = False
    """Whether the preemptor waits behind an earlier preemptor of its team, which waits for the limit."""

    @property
    def reason(self) -> Reason:
        """The reason, with the wish, the limit, and one thing to do."""
        limit = f"{self.exceeded} ({self.allowed})"
        if self.is_behind:
            why = f", but an earlier job or pod of its team waits for {limit} first. Wait."
        elif self.needs_higher_limit:
            why = (
                f" at once, more than {limit} allows. Raise this limit in the operator's settings if that many"
                " evictions are intended."
            )
        else:
            why = f" at once, and {limit} leaves {self.left} for this minute. Wait."
        text = f"{pods(self.wanted)} of others would have to be evicted for it{why}"
        return Reason(SizeReason.RECLAIM_TOO_LARGE, text)


@dataclass(frozen=True, slots=True)
class OverEvictionLimit:
    """A preemptor that a limit on evictions stops: a job, or a foreign pod as a job of one pod."""

    demand: JobDemand
    is_foreign_pod: bool
    preemptor: PreemptorKey
    hit: EvictionLimitHit


def preemptor_of(entry: Entry) -> PreemptorKey:
    """The team and the key under which evictions for the entry are counted.

    Namespaces without a policy are one team (111), and the key of all pods of a gang is its name (144).
    """
    team = entry.account.path_seen_by_others[0].team.name if entry.account else entry.team
    return PreemptorKey(team, entry.gang or entry.demand.uid)


class EvictionCount:
    """Counts evictions: the pods of others (uids) deleted within the last minute, and those that this pass preempts.

    A pod in both groups counts once, for the preemptor of this pass.
    """

    def __init__(self, gone: Mapping[str, PreemptorKey]) -> None:
        self.evicted: dict[str, PreemptorKey] = {}
        self.recent_preemptors = frozenset(gone.values())
        self._gone = gone
        self.of_team, self.of_preemptor, self.per_cluster = Counter[str](), Counter[PreemptorKey](), 0
        for preemptor in gone.values():
            self._count(preemptor, +1)

    def put(self, uid: str, preemptor: PreemptorKey | None) -> None:
        """Count the pod as evicted for that preemptor; None: as not evicted."""
        before = self.evicted.get(uid)
        if before == preemptor:
            return
        self._count(before or self._gone.get(uid), -1)
        if preemptor is not None:
            self.evicted[uid] = preemptor
        else:
            del self.evicted[uid]
        self._count(preemptor or self._gone.get(uid), +1)

    def _count(self, preemptor: PreemptorKey | None, sign: int) -> None:
        if preemptor is not None:
            self.of_team[preemptor.team] += sign
            self.of_preemptor[preemptor] += sign
            self.per_cluster += sign


def check_limits(
    limits: EvictionLimits, preemptor: Entry, evictions: EvictionCount, wanted: int, *, ahead: EvictionLimitHit | None
) -> EvictionLimitHit | None:
    """The refusal of a preemption for which `wanted` pods would be evicted; None if no limit forbids it.

    `evictions` includes these pods. `ahead` is the refusal of an earlier preemptor of the same team, which waits for a
    limit; None if none waits. Behind such a preemptor, a later preemptor may continue to preempt. It may begin to
    preempt only if the cluster's limit is reserved for this later preemptor.
    """
    who = preemptor_of(preemptor)
    entitled = preemptor.account is not None and preemptor.account.entitlement(0) is Entitlement.GUARANTEED
    first = evictions.of_team[who.team] == evictions.of_preemptor[who]
    for name, limit, counted in (
        (EvictionLimit.PER_TEAM, limits.per_team, evictions.of_team[who.team]),
        (EvictionLimit.PER_CLUSTER, limits.per_cluster - limits.reserved_for_others_than(who), evictions.per_cluster),
    ):
        lenient = entitled and name not in limits.configured
        if wanted and counted > limit and not (lenient and first):
            most = limits.per_cluster if name is EvictionLimit.PER_CLUSTER else limit
            left = max(0, limit - counted + wanted)
            return EvictionLimitHit(name, wanted, most, left, needs_higher_limit=wanted > most and not lenient)
    if wanted and ahead and who != limits.longest_waiting and who not in evictions.recent_preemptors:
        return replace(ahead, wanted=wanted, is_behind=True)
    return None
