"""How many GPUs of its idle guarantee each team lends to others.

GPUs that are guaranteed to no team are borrowed first. No rule says whose idle guarantee the rest comes from, so the
lenders share it in proportion to what each could lend: all together lend no more than is borrowed (207).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from elastic_operator.plan.allocation.accounts import Account, Accounts

Used = Callable[[Account], int]


def lendable(account: Account, used: int) -> int:
    """The most GPUs that the account may lend while it uses so many."""
    idle = max(0, account.guaranteed - used)
    return idle if account.quota.lend_limit is None else min(idle, account.quota.lend_limit)


def lent_gpus(accounts: Accounts, flavor: str, used: Used) -> Mapping[Account, int]:
    """The GPUs of that flavor that each account lends to others; `used` is the use of an account, now or soon.

    Children lend to each other, and they lend the part of the parent's loan that the parent does not have without them.
    """
    lent: dict[Account, int] = {}
    _lend(accounts.tops(flavor), accounts.capacity[flavor], 0, used, lent)
    return lent


def _lend(siblings: Sequence[Account], supply: int, lent_out: int, used: Used, lent: dict[Account, int]) -> None:
    """Note what these accounts and all accounts below them lend. They have `supply` GPUs together, with the `lent_out`
    GPUs that their parent has lent to others.
    """
    unguaranteed = max(0, supply - sum(account.guaranteed for account in siblings))
    borrowed = lent_out + sum(max(0, used(account) - account.guaranteed) for account in siblings)
    most = {a: lendable(a, used(a)) for a in sorted(siblings, key=lambda account: account.team.name)}
    lent |= _in_proportion(max(0, borrowed - unguaranteed), most)
    claims = {account: max(used(account), account.guaranteed - lent[account]) for account in siblings}
    for account in siblings:
        if account.children:
            left = supply - lent_out - sum(claims.values()) + claims[account]
            _lend(account.children, left + lent[account], lent[account], used, lent)


def _in_proportion(gpus: int, most: Mapping[Account, int]) -> dict[Account, int]:
    """Divide `gpus` into whole parts, in proportion to the most that each account may lend; no part is larger."""
    total, before, parts = sum(most.values()), 0, dict[Account, int]()
    gpus = min(gpus, total)
    for account, part in most.items():
        parts[account] = gpus * (before + part) // total - gpus * before // total if total else 0
        before += part
    return parts
