"""Makes the status of a quota policy: GPUs by flavor and in all, jobs, and the parts that are not in effect as
written.

The numbers are those of the accounts after a pass. `resolve` finds the problems and words them. A parent's numbers are
the sums of its children's; only what children lend to each other their parent does not lend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from elastic_api.policy import MAX_FLAVORS, Amounts, FlavorAmounts, JobCounts, PolicyConditionType, PolicyStatus
from elastic_operator.plan.allocation.accounts import Account, Accounts
from elastic_operator.plan.allocation.lending import lent_gpus
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.text import Reason, listed
from elastic_operator.plan.facts.times import condition as next_condition

NOT_IN_CONFLICT = frozenset({"InvalidSpec", "InternalError", "UnknownFlavor"})
"""Reasons of problems of a policy with itself or the settings. All other problems are conflicts with other policies."""


class PolicyUsage:
    """The accounts of one pass, and how many jobs each team has. It must not be read after the next pass has begun.

    `stopped` says why no GPUs are reclaimed now; None if they are.
    """

    def __init__(self, accounts: Accounts, jobs: Iterable[JobDemand], *, stopped: Reason | None = None) -> None:
        self._stopped = stopped
        self._of: dict[str, list[Account]] = {}
        self._lent: dict[Account, int] = {}
        self._guaranteed: dict[str, dict[str, int]] = {}
        """The guarantees of the teams without a parent, by flavor and name."""
        self._capacity: Mapping[str, int] = accounts.capacity
        self._running: Counter[str] = Counter()
        self._queued: Counter[str] = Counter()
        for flavor in accounts.capacity:
            for account in accounts.all(flavor):
                self._of.setdefault(account.team.name, []).append(account)
            tops = accounts.tops(flavor)
            self._guaranteed[flavor] = {top.team.name: top.guaranteed for top in tops if top.guaranteed}
            self._lent |= lent_gpus(accounts, flavor, attrgetter("used_with_terminating"))
        above = {name: [account.team.name for account in known[0].path] for name, known in self._of.items()}
        for job in jobs:
            team = accounts.teams.name_of(job.namespace)
            if job.members:
                self._running.update(above.get(team, ()))
            elif job.wants_pods:
                self._queued.update(above.get(team, ()))

    def status(
        self, name: str, generation: int, problems: Sequence[Reason], *, before: PolicyStatus, now: float
    ) -> PolicyStatus:
        """The status of a policy that had this generation and these problems in the pass.

        `before` is the one that it has, `now` is in epoch seconds.
        """
        accounts = self._of.get(name, [])
        amounts = [self._amounts(account) for account in accounts]
        jobs = JobCounts(running=self._running[name], queued=self._queued[name])
        named = {account.flavor for account in accounts if account.flavor in account.team.quotas}
        shown = [amount for amount in amounts if amount.name in named or amount.used > 0 or amount.pending > 0]
        known = {condition.type: condition for condition in before.conditions}
        return PolicyStatus(
            observed_generation=generation,
            total=_total(amounts) if accounts else None,
            flavors=shown[:MAX_FLAVORS],
            jobs=jobs if accounts else None,
            conditions=[
                next_condition(known.get(kind), kind, holds, reason, generation, now)
                for kind, holds, reason in self._answers(problems, accounts)
            ],
        )

    def _amounts(self, account: Account) -> FlavorAmounts:
        used, guaranteed = account.used_with_terminating, account.guaranteed
        return FlavorAmounts(
            name=account.flavor,
            guaranteed=guaranteed,
            used=used,
            borrowed=max(0, used - guaranteed),
            lent=self._lent[account],
            pending=_pending(account),
            fair_share=account.share,
            limit=account.quota.limit,
        )

    def _answers(
        self, problems: Sequence[Reason], accounts: Sequence[Account]
    ) -> Iterator[tuple[PolicyConditionType, bool, Reason]]:
        """Each condition, whether it is True, and its reason."""
        conflicts = [problem for problem in problems if problem.code not in NOT_IN_CONFLICT]
        kind = PolicyConditionType
        yield kind.READY, not problems, _joined(problems, otherwise="InForce")
        yield kind.CONFLICT, bool(conflicts), _joined(conflicts, otherwise="NoConflict")
        over = [Reason("GuaranteesExceedGPUs", text) for one in accounts if (text := self._overcommitted(one))]
        yield kind.OVERCOMMITTED, bool(over), _joined(over, otherwise="Covered")
        over = [Reason("ForeignPods", text) for one in accounts if (text := self._foreign_over_limit(one))]
        yield kind.FOREIGN_OVER_LIMIT, bool(over), _joined(over, otherwise="WithinLimit")
        yield kind.RECLAIMING, self._stopped is None, self._stopped or Reason("On", "")

    def _overcommitted(self, account: Account) -> str:
        if account.parent is not None or not account.guaranteed:
            return ""
        flavor, guarantees = account.flavor, self._guaranteed[account.flavor]
        guaranteed, there = sum(guarantees.values()), self._capacity[flavor]
        if guaranteed <= there:
            return ""
        names = listed(sorted(guarantees))
        return (
            f"Flavor {flavor!r}: {guaranteed} GPUs are guaranteed ({names}), and nodes that take pods have {there}."
            " Lower guaranteed in these policies, or add nodes; until then the first teams to use the GPUs get them."
        )

    def _foreign_over_limit(self, account: Account) -> str:
        foreign, limit = account.foreign_below, account.quota.limit
        if limit is None or not foreign or account.used <= limit:
            return ""
        return (
            f"Flavor {account.flavor!r}: the pods of the policy's namespaces use {account.used} GPUs and may use"
            f" {limit}; {foreign} are used by pods that belong to no job, which no limit stops. Delete some of those"
            " pods, or raise borrowing.limit; until then the policy's jobs get no more."
        )


def _joined(reasons: Sequence[Reason], *, otherwise: str) -> Reason:
    """The code of the first, with the sentences of all; `otherwise` without a sentence if there are none."""
    return Reason(reasons[0].code, " ".join(one.message for one in reasons)) if reasons else Reason(otherwise, "")


def _pending(account: Account) -> int:
    """The GPUs that jobs wait for: the sum over the accounts without children at and below this one."""
    if account.children:
        return sum(map(_pending, account.children))
    return max(0, account.requested - account.used_with_terminating)


def _total(amounts: Sequence[FlavorAmounts]) -> Amounts:
    """The sum over all flavors. It has no limit if one of the flavors has none."""
    limits = [amount.limit for amount in amounts if amount.limit is not None]
    return Amounts(
        guaranteed=sum(amount.guaranteed for amount in amounts),
        used=sum(amount.used for amount in amounts),
        borrowed=sum(amount.borrowed for amount in amounts),
        lent=sum(amount.lent for amount in amounts),
        pending=sum(amount.pending for amount in amounts),
        limit=sum(limits) if len(limits) == len(amounts) else None,
    )
