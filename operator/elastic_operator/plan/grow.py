"""Brings jobs to allowed sizes and grows them: within a team, the job that has least beyond its minimum goes first.

Growth takes free room, and from other teams what its team is entitled to; never from its own team.
"""

from __future__ import annotations

from enum import Enum

from elastic_operator.plan.accounts import Account, Tier
from elastic_operator.plan.claim import MASTER, WORKER, Claim
from elastic_operator.plan.displace import displace
from elastic_operator.plan.provision import is_kept_for_asked
from elastic_operator.plan.room import Ask
from elastic_operator.plan.seating import seat_all
from elastic_operator.plan.table import Table
from elastic_operator.plan.victims import Victims

TooMany = dict[tuple[Account, Ask, bool], int]
"""So many pods of a shape could not be placed for a team even by displacing."""


_ENOUGH_LOSSES = 2


class Growth(Enum):
    """What came of a try to grow."""

    DONE = "done"
    LATER = "later"
    NEVER = "never"


def settle_sizes(table: Table) -> None:
    """Shrink each job that lies between two allowed sizes to the lower one."""
    for claim in sorted(table.roster.partial | table.touched, key=lambda claim: claim.rank):
        if claim.served and claim.job.sizes and claim.size not in claim.job.sizes:
            below = [n for n in claim.job.sizes if n < claim.size]
            if below:
                table.shrink(claim, below[-1])


def grow(table: Table, claim: Claim, tier: Tier, too_many: TooMany) -> Growth:
    """Take the next allowed size if the job may and all its pods fit."""
    size = claim.next_step(table.now)
    if size is None or claim.failed_at(size, table.now) or claim.delayed_at(size, table.now) or claim.job.waiting:
        return Growth.NEVER
    need, account = claim.gpus_missing(size), claim.account
    if account is None:
        return Growth.DONE if _grow_freely(table, claim, size) else Growth.NEVER
    right = account.tier(need)
    if right > tier:
        return Growth.LATER
    if not may_borrow_again(claim, right) or (not claim.job.preemptible and account.over_fixed(need)):
        return Growth.NEVER
    if is_kept_for_asked(claim, need):
        return Growth.NEVER
    may_use = account.over(need) is None and table.accounts.may_borrow(account, need)
    if may_use and _grow_freely(table, claim, size):
        return Growth.DONE
    taken = claim.takes(table.now) and _grow_at_others_cost(table, claim, size, too_many)
    return Growth.DONE if taken else Growth.NEVER


def may_borrow_again(claim: Claim, right: Tier) -> bool:
    """Not if what it had beyond its team's share was taken from it again and again in this very pass."""
    return right is not Tier.BORROWED or claim.losses < _ENOUGH_LOSSES


def _grow_freely(table: Table, claim: Claim, size: int) -> bool:
    """Into free room; pods of its own that were to go are kept first."""
    if not claim.gives or claim.starts_anew:
        master, workers = claim.missing(size)
        return seat_all(table, claim, master=master, workers=workers)
    mark = table.mark()
    for member in list(table.released(claim)):
        if claim.size < size and table.fits_back(claim, member):
            table.restore(claim, member)
    master, workers = claim.missing(size)
    if seat_all(table, claim, master=master, workers=workers):
        return True
    table.roll_back(mark)
    return False


def _grow_at_others_cost(table: Table, claim: Claim, size: int, too_many: TooMany) -> bool:
    """By taking from other teams, if its own is entitled to."""
    account = claim.account
    assert account is not None, "asked by `grow` for those with an account"
    master, workers = claim.missing(size)
    key = (account, claim.worker, master)
    if workers >= too_many.get(key, workers + 1):
        return False
    roles = [MASTER] * master + [WORKER] * workers
    if displace(table, claim, roles, Victims(table, claim, claim.gpus_missing(size), growing=True)):
        return True
    too_many[key] = workers
    return False
