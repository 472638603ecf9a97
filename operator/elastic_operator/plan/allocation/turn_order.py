"""The order of turns: the team with the lowest share value is next, level by level from the top (32).

A team's use counts for its parent, so each turn changes the share values of all teams under that parent. Therefore each
parent has a heap of its teams, and the parents are ordered by their first teams: a turn changes one heap only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush, heapreplace

from elastic_operator.plan.allocation.accounts import Account, share_value
from elastic_operator.plan.facts.team import by_age

_SortKey = tuple[tuple[float, ...], tuple[int, float, str, str]]
"""The share values on the path to one account, and a tie-breaker; its last string is the flavor."""
_Queued = tuple[_SortKey, Account | None]

_FIRST: _SortKey = ((-1.0,), (0, 0.0, "", ""))
"""The sort key of jobs without GPUs. They are first, because they use nothing that teams share."""


def lowest_first(accounts: Iterable[Account | None], serve: Callable[[Account | None], bool]) -> None:
    """Call `serve` for the account with the lowest share value, again and again. An account for which it returns False
    is not served any more.

    An account whose share value has changed since it was queued is sorted in again when it becomes the first one.
    """
    heaps: dict[Account | None, list[_Queued]] = {}
    for account in accounts:
        heaps.setdefault(account.parent if account else None, []).append((_below_parent(account), account))
    for heap in heaps.values():
        heapify(heap)
    parents = [(_of_first(parent, heap), parent) for parent, heap in heaps.items()]
    heapify(parents)
    while parents:
        known, parent = heappop(parents)
        heap = heaps[parent]
        account = _first(heap)
        if known == _of_first(parent, heap) and not serve(account):
            heappop(heap)
        if heap:
            heappush(parents, (_of_first(parent, heap), parent))


def _first(heap: list[_Queued]) -> Account | None:
    """The account of the heap with the lowest share value now. Accounts whose value has changed are sorted in again."""
    while True:
        known, account = heap[0]
        present = _below_parent(account)
        if known == present:
            return account
        heapreplace(heap, (present, account))


def _below_parent(account: Account | None) -> _SortKey:
    if account is None:
        return _FIRST
    team = account.team
    tie = -team.priority, *by_age(team), account.flavor
    return (share_value(account.used, account.share),), tie


def _of_first(parent: Account | None, heap: list[_Queued]) -> _SortKey:
    """The place of the first account of the heap, from the top down."""
    (values, tie), _ = heap[0]
    above = tuple(share_value(one.used, one.share) for one in reversed(parent.path)) if parent else ()
    return (*above, *values), tie
