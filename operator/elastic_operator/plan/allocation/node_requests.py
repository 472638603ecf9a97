"""Autoscaled pools: which jobs ask for new nodes, by pods that no node is chosen for and that wait for the scheduler.

A job asks for what its minimum lacks, once it has had its turn in vain and nothing but room is in its way. What is
asked for holds no room and makes nobody lose a pod; under its team's limit it counts, so that the nodes are of use when
they come. Once room is found for the minimum, on a new node or an old one, the job counts as having it, and the
scheduler brings the pods there.

Such pods would take whatever room appears. So where room is made for others that they would fit into, they are
withdrawn, or not made, until those have come.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from elastic_operator.plan.allocation.entry import MASTER, WORKER, Claim, Seat, keep_order
from elastic_operator.plan.allocation.free import Ask
from elastic_operator.plan.allocation.state import Table
from elastic_operator.plan.facts.snapshot import Member

Promised = dict[int, list[tuple[Ask, bool]]]
"""By node: what pods to come there ask for, and whether their places have to be held for a while."""


def step_aside(table: Table, claim: Claim) -> None:
    """Before the job is served: what it asks for is left out, and what jobs of lower priority ask for in its way."""
    _set_asked(table, claim, None)
    account, need = claim.account, claim.gpus_missing(claim.minimum)
    if account is None or not is_kept_for_asked(claim, need):
        return
    for other in table.by_account[account]:
        if other.job.priority < claim.job.priority:
            _set_asked(table, other, None)


def is_kept_for_asked(claim: Claim, need: int) -> bool:
    """Whether its team could use so many more GPUs if it had not asked for nodes for others."""
    account = claim.account
    return account is not None and account.over(need) is None and account.over_with_asked(need) is not None


def ask_for_nodes(table: Table, claim: Claim) -> None:
    """Have the job ask for nodes if it is not served and may, and not otherwise."""
    _set_asked(table, claim, claim.gpus_missing(claim.minimum) if _may_ask(table, claim) else None)


def _may_ask(table: Table, claim: Claim) -> bool:
    job = claim.job
    if job.nodes_from is None or not job.wants or claim.served or claim.seats:
        return False
    if claim.failed_at(claim.minimum, table.now) or not (job.waiting or table.now >= job.nodes_from):
        return False
    return _is_within_quota(table, claim)


def _is_within_quota(table: Table, claim: Claim) -> bool:
    account, need = claim.account, claim.gpus_missing(claim.minimum)
    if account is None:
        return True
    more = need - (claim.asked or 0)
    if account.over_with_asked(more) or (not claim.job.preemptible and account.over_fixed(more)):
        return False
    return table.accounts.may_borrow(account, need) or not _fits_anywhere(table, claim)


def _fits_anywhere(table: Table, claim: Claim) -> bool:
    """Whether any of the missing pods would be put on a node there is, where GPUs are kept for their owners."""
    return any(table.board.fits(ask, node) for ask, _ in _missing(claim) for node in ask.hosts)


def _missing(claim: Claim) -> Iterator[tuple[Ask, int]]:
    master, workers = claim.missing(claim.minimum)
    if master:
        yield claim.master, 1
    if workers:
        yield claim.worker, workers


def _set_asked(table: Table, claim: Claim, gpus: int | None) -> None:
    if claim.asked != gpus:
        table.board.on_undo(partial(_count_asked, claim, claim.asked))
        table.touched.add(claim)
        _count_asked(claim, gpus)


def _count_asked(claim: Claim, gpus: int | None) -> None:
    more = (gpus or 0) - (claim.asked or 0)
    for account in claim.account.path if claim.account else ():
        account.asked += more
        account.fixed += 0 if claim.job.preemptible else more
    claim.asked = gpus


def settle_asking(table: Table) -> None:
    """At the end of a pass: the weakest do not ask where limits were used meanwhile; who is in the way waits."""
    asking = [claim for claim in table.touched if claim.asked is not None]
    promised = _promised(table) if asking else {}
    for claim in sorted(asking, key=lambda claim: -claim.rank):
        if not _is_within_quota(table, claim):
            _set_asked(table, claim, None)
        elif _would_rob(table, claim, promised):
            table.board.on_undo(partial(setattr, claim, "withheld", False))
            claim.withheld = True


def _would_rob(table: Table, claim: Claim, promised: Promised) -> bool:
    """Whether its pods would fit where room is held for others; those that wait already did not take what is free."""
    for node, places in promised.items():
        loads = [(ask.shape.requests, ask.ports) for ask, lasts in places if lasts or not claim.job.waiting]
        if loads and any(table.board.fits_without(ask, node, loads) for ask, _ in _missing(claim)):
            return True
    return False


def _promised(table: Table) -> Promised:
    """The places that are held for pods to come, by node."""
    found: Promised = {}
    for other in table.touched:
        for seat in other.seats:
            lasts = not seat.spot.ready or other.request is not None
            found.setdefault(seat.spot.node, []).append((other.ask(seat.role), lasts))
    for node, seated in enumerate(table.seated):
        held = [(other.ask(seat.role), True) for other, seat in seated if other.reserves]
        if held:
            found.setdefault(node, []).extend(held)
    return found


# -- what comes of it --------------------------------------------------------------------------------------------------


def asks(claim: Claim) -> bool:
    """Whether pods of it ask for nodes now."""
    return claim.asked is not None and not claim.withheld


def go_on_waiting(claim: Claim) -> tuple[Member, ...]:
    """The waiting pods that stay: as many as are asked for, or as there is room for now."""
    if not claim.job.waiting:
        return ()
    if asks(claim):
        master, workers = claim.missing(claim.minimum)
    else:
        roles = [seat.role for seat in claim.seats]
        master, workers = MASTER in roles, roles.count(WORKER)
    waiting = sorted(claim.job.waiting, key=keep_order)
    of_role = {role: [pod for pod in waiting if pod.role == role] for role in (MASTER, WORKER)}
    return (*of_role[MASTER][: int(master)], *of_role[WORKER][:workers])


def new_roles(claim: Claim) -> list[str]:
    """The roles of the pods to be made without a node, the master first."""
    if not asks(claim):
        return []
    master, workers = claim.missing(claim.minimum)
    there = [pod.role for pod in go_on_waiting(claim)]
    return [MASTER] * (master - there.count(MASTER)) + [WORKER] * (workers - there.count(WORKER))


def seats_without_pods(claim: Claim) -> list[Seat]:
    """The seats for which pods are to be made: the scheduler brings those that wait to the others."""
    there = [] if asks(claim) else [pod.role for pod in go_on_waiting(claim)]
    left = []
    for seat in claim.seats:
        if seat.role in there:
            there.remove(seat.role)
        else:
            left.append(seat)
    return left
