"""May a team use more GPUs for a job? One answer for all gates that give GPUs, and for the sentence that users read.

The rules have one order. A gate that does not check all of them names those that it checks, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from elastic_operator.plan.allocation.accounts import Account, Accounts
from elastic_operator.plan.allocation.entry import JobEntry


class Rule(Enum):
    """What may keep a team from more GPUs, in the order in which it is told."""

    GUARANTEE = "a job that is not preemptible stays within its team's guarantee"
    LIMIT = "what a team uses stays within its limit"
    ASKED = "GPUs for which a job asks for new nodes are kept under the limit for that job"
    LENDING = "GPUs that are idle, and not lent, are kept for their owners"


IDLE = (Rule.LIMIT, Rule.LENDING)
"""What GPUs that are idle must be free of."""


class Refusal(NamedTuple):
    """A rule that `need` more GPUs would break, and whose guarantee or limit it is about."""

    rule: Rule
    account: Account

    @property
    def is_final(self) -> bool:
        """Whether it stands whoever goes: what it counts is not to be taken back, or not even used."""
        return self.rule in (Rule.GUARANTEE, Rule.ASKED)


def refusal(accounts: Accounts, entry: JobEntry, need: int, *rules: Rule) -> Refusal | None:
    """The first rule that keeps the job's team from using `need` more GPUs for it; only of `rules`, if any are given.

    The account is the one nearest to the job's. What the job itself asks new nodes for is part of what it needs, so it
    does not count twice.
    """
    if entry.account is None:
        return None
    for rule in rules or Rule:
        account = _WHOSE[rule](accounts, entry, entry.account, need)
        if account is not None:
            return Refusal(rule, account)
    return None


def _beyond_guarantee(_accounts: Accounts, entry: JobEntry, account: Account, need: int) -> Account | None:
    if entry.job.preemptible:
        return None
    more = need - (entry.asked or 0)
    return next((one for one in account.path if one.fixed + more > one.guaranteed), None)


def _beyond_limit(_accounts: Accounts, _entry: JobEntry, account: Account, need: int) -> Account | None:
    return next((one for one in account.path if one.used + need > one.limit), None)


def _kept_for_asked(accounts: Accounts, entry: JobEntry, account: Account, need: int) -> Account | None:
    """What other namespaces without a policy ask for keeps none from its own share of what all may use together."""
    if _beyond_limit(accounts, entry, account, need):
        return None
    more = need - (entry.asked or 0)
    within_own = account.outward is not account.path and account.used + account.asked + more <= account.share
    asked = ((one, account.asked if within_own else one.asked) for one in account.path)
    return next((one for one, gpus in asked if one.used + gpus + more > one.limit), None)


def _kept_for_owners(accounts: Accounts, _entry: JobEntry, account: Account, need: int) -> Account | None:
    return None if accounts.may_borrow(account, need) else account


_WHOSE: Mapping[Rule, Callable[[Accounts, JobEntry, Account, int], Account | None]] = {
    Rule.GUARANTEE: _beyond_guarantee,
    Rule.LIMIT: _beyond_limit,
    Rule.ASKED: _kept_for_asked,
    Rule.LENDING: _kept_for_owners,
}
