"""Decides whether a team may use more GPUs for a job. All modules that grant GPUs ask here, and the explanation for
users does, too.

The rules are always checked in the same order. A caller that has only some rules checked says why.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from elastic_operator.plan.allocation.accounts import Account, Accounts
from elastic_operator.plan.allocation.entry import Entry


class Rule(Enum):
    """The rules that may keep a team from more GPUs, in the order in which messages name them."""

    GUARANTEE = "a job that is not preemptible stays within its team's guarantee"
    LIMIT = "what a team uses stays within its limit"
    LENDING = "GPUs that are idle, and not lent, are kept for their owners"


IDLE = (Rule.LIMIT, Rule.LENDING)
"""The rules for idle GPUs."""


class QuotaRefusal(NamedTuple):
    """A rule that more GPUs would break, and the account whose guarantee or limit they would exceed."""

    rule: Rule
    account: Account

    @property
    def is_final(self) -> bool:
        """Whether no preemption can lift the refusal, because the rule counts GPUs that cannot be taken back."""
        return self.rule is Rule.GUARANTEE


def quota_refusal(accounts: Accounts, entry: Entry, need: int, *rules: Rule) -> QuotaRefusal | None:
    """The first rule that keeps the job's team from using `need` more GPUs for the job; None if no rule does. If
    `rules` are given, only these are checked.

    If several accounts refuse, the result has the one nearest to the job's account.
    """
    if entry.account is None:
        return None
    for rule in rules or Rule:
        account = _first_over(rule, accounts, entry, entry.account, need)
        if account is not None:
            return QuotaRefusal(rule, account)
    return None


def _first_over(rule: Rule, accounts: Accounts, entry: Entry, account: Account, need: int) -> Account | None:
    match rule:
        case Rule.GUARANTEE if entry.demand.preemptible:
            return None
        case Rule.GUARANTEE:
            return next((one for one in account.path if one.non_preemptible + need > one.guaranteed), None)
        case Rule.LIMIT:
            return next((one for one in account.path if one.used + one.on_new_nodes + need > one.limit), None)
        case Rule.LENDING:
            return None if accounts.may_borrow(account, need) else account
