"""Gives one job its minimum: all of it or nothing.

First from free room, as far as its team's limits allow; then by displacing others: what costs less than a running job,
then whole jobs. A job whose pods wait for new nodes already only takes what is free. A job that has waited too long
holds what part of its minimum there is room for.
"""

from __future__ import annotations

from elastic_operator.plan.allocation.capacity import Supplies
from elastic_operator.plan.allocation.entry import MASTER, WORKER, Claim
from elastic_operator.plan.allocation.free import Ask
from elastic_operator.plan.allocation.node_requests import ask_for_nodes, is_kept_for_asked, step_aside
from elastic_operator.plan.allocation.preemption.preempt import displace
from elastic_operator.plan.allocation.preemption.victims import Cost, Victims
from elastic_operator.plan.allocation.seating import find_seat, seat_all
from elastic_operator.plan.allocation.state import Table
from elastic_operator.plan.facts.snapshot import Request

MOST_NEW_PLACES = 32
"""For so many foreign pods new ways are made in one pass: thousands could wait, and nobody else be served meanwhile.

A gang is served as a whole where it is served at all. The next pass goes on. It follows at once, since each pod that is
planned for is nominated, and that is news.
"""
Hopeless = dict[tuple[str, int, tuple[bool, int] | None, Ask | None, Ask], int]
"""For pods of these shapes, of jobs of one team and priority: so many workers could not be placed even by displacing.

That is true for whoever comes later. Foreign pods are told apart by whom kube-scheduler would evict for them by itself.
"""


def serve_minimum(table: Table, claim: Claim, hopeless: Hopeless) -> None:
    """Give the job its minimum, or leave it what it has."""
    if claim.displaced:
        _come_back(table, claim)
    table.set_served(claim, claim.complete or _try_beside_asked(table, claim, hopeless))
    if claim.served:
        table.braked.pop(claim, None)
        table.set_reserves(claim, False)
    elif claim.displaced:
        table.release_all(claim)
    ask_for_nodes(table, claim)


def _try_beside_asked(table: Table, claim: Claim, hopeless: Hopeless) -> bool:
    """Nodes that it asks for itself, or jobs of lower priority do, are not in its way."""
    if claim.asked is None and not is_kept_for_asked(claim, claim.gpus_missing(claim.minimum)):
        return _complete(table, claim, hopeless)
    mark = table.mark()
    step_aside(table, claim)
    if _complete(table, claim, hopeless):
        return True
    table.roll_back(mark)
    return False


def _come_back(table: Table, claim: Claim) -> None:
    """A displaced job keeps what of its minimum still has its room, if it may have all of it and keeps its master."""
    if not _may_use(table, claim, claim.gpus_missing(claim.minimum)):
        return
    for member in list(table.released(claim)):
        if claim.size < claim.minimum and table.fits_back(claim, member):
            table.restore(claim, member)
        elif member.role == MASTER:
            return


def _complete(table: Table, claim: Claim, hopeless: Hopeless) -> bool:
    need = claim.gpus_missing(claim.minimum)
    if claim.failed_at(claim.minimum, table.now) or not _stays_within_guarantee(claim, need):
        return False
    if is_kept_for_asked(claim, need):
        return False
    if claim.job.waiting and not (claim.master.shape.pinnable and claim.worker.shape.pinnable):
        return False  # the scheduler has said that it is not as it looks
    master, workers = claim.missing(claim.minimum)
    if _may_use(table, claim, need) and seat_all(table, claim, master=master, workers=workers):
        return True
    if claim.job.waiting or not claim.takes(table.now):
        return False
    request = claim.request
    foreign = (request.preempts, request.priority) if request else None
    shapes = (claim.team, claim.job.priority, foreign, claim.master if master else None, claim.worker)
    if request and _goes_where_reserved(table, claim, request):
        return True
    going_on = claim.taker in table.going_on
    is_hopeless = workers >= hopeless.get(shapes, workers + 1) and not going_on
    if is_hopeless or (request and not table.serving and table.new_places >= MOST_NEW_PLACES):
        return False
    if _displace_any(table, claim, only=None):
        table.new_places += request is not None
        return True
    alone = table.spares_whole_jobs(claim) or going_on
    if not claim.kept and claim.job.preemptible and not alone:
        hopeless[shapes] = workers
    return False


def _displace_any(table: Table, claim: Claim, *, only: int | None) -> bool:
    """Have others go for what its minimum lacks: rather parts of jobs than whole ones that run."""
    need = claim.gpus_missing(claim.minimum)
    for most in (Cost.STUCK_JOB, Cost.JOB):
        victims = Victims(table, claim, need, most=most)
        if any(displace(table, claim, roles, victims, only=only) for roles in _orders(claim)):
            return True
    return False


def _goes_where_reserved(table: Table, claim: Claim, request: Request) -> bool:
    """Have others go for a foreign pod on the node that is reserved for it."""
    node = table.board.number.get(request.reserved)
    return node is not None and _displace_any(table, claim, only=node)


def _stays_within_guarantee(claim: Claim, need: int) -> bool:
    return claim.job.preemptible or claim.account is None or claim.account.over_fixed(need) is None


def _may_use(table: Table, claim: Claim, need: int) -> bool:
    """Whether its team may use so many more GPUs; the scheduler does not ask that of foreign pods."""
    if claim.account is None or claim.request:
        return True
    return claim.account.over(need) is None and table.accounts.may_borrow(claim.account, need)


def _orders(claim: Claim) -> list[list[str]]:
    """The missing pods in the orders worth trying: a master of another shape may take the place the workers need."""
    master, workers = claim.missing(claim.minimum)
    roles = [MASTER] * master + [WORKER] * workers
    return [roles] if claim.master is claim.worker or not (master and workers) else [roles, roles[::-1]]


def starves(table: Table, claim: Claim) -> bool:
    """Whether it waited so long for its minimum that what becomes free is held for it."""
    since = claim.job.waiting_since
    return bool(since) and not claim.request and table.now >= since + table.snapshot.starvation_seconds


def reserve(table: Table, claim: Claim) -> None:
    """Hold what part of its minimum there is room for, if all of it could have room and right one day."""
    need, (master, workers) = claim.gpus_missing(claim.minimum), claim.missing(claim.minimum)
    supplies, account = Supplies(table), claim.account
    if claim.asked is not None or not _stays_within_guarantee(claim, need):
        return
    if any(supplies.on_empty_nodes(ask) < n for ask, n in ((claim.master, master), (claim.worker, workers))):
        return
    if account and any(one.foreign + need > one.limit for one in account.path):
        return
    for role in [MASTER] * master + [WORKER] * workers:
        seat = find_seat(table, claim, role) if _may_use(table, claim, claim.ask(role).gpus) else None
        if seat is not None:
            table.set_reserves(claim, True)
            table.sit(claim, seat)
