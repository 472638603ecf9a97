"""Makes room for a job by having others go: the cheapest way for each missing pod (`ways`), all of them or nothing.

Where a limit is in the way, room is made under it first. At the end, each pod that was to go is kept after all if those
who took its room fit elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from elastic_operator.plan.claim import MASTER, Claim, Seat
from elastic_operator.plan.model import Member
from elastic_operator.plan.offers import Offers
from elastic_operator.plan.place import Spot
from elastic_operator.plan.seating import find_seat, seat_all
from elastic_operator.plan.table import Table
from elastic_operator.plan.victims import Victims, clear
from elastic_operator.plan.ways import Ways


def displace(table: Table, taker: Claim, roles: Sequence[str], victims: Victims, *, only: int | None = None) -> bool:
    """Seat all these roles, displacing what `victims` allow; all of them, or nothing and False.

    Others go from the node `only`, if it is given.
    """
    if not victims.any():
        return False
    mark, took = table.mark(), len(taker.took)
    gpus = [taker.ask(role).gpus for role in roles]
    if _make_room_under_limits(table, taker, sum(gpus), victims):
        ways = Ways(table, taker, victims, only=only)
        done = all(_seat(table, taker, role, sum(gpus[i:]), ways) for i, role in enumerate(roles))
        done = done and (not taker.account or table.accounts.may_borrow(taker.account, 0))
        if done and (table.serving or not table.brake(taker, since=took)):  # a gang is braked as a whole
            return True
    table.roll_back(mark)
    return False


def _make_room_under_limits(table: Table, taker: Claim, need: int, victims: Victims) -> bool:
    """Have the weakest under each limit go that `need` more would pass."""
    account = taker.account
    if account is None or taker.request:
        return True
    while over := account.over(need):
        offers = Offers(victims, over)
        while account.over(need) is over:
            unit = offers.take_weakest(victims.taking(need))
            if unit is None:
                return False
            clear(table, taker, [unit])
    return True


def _seat(table: Table, taker: Claim, role: str, need: int, ways: Ways) -> bool:
    """Seat one pod; `need` are the GPUs that the job still lacks, this pod's included."""
    seat = find_seat(table, taker, role) if _may_use_idle(table, taker, role) else None
    if seat is None:
        way = ways.cheapest(role, need)
        if way is None:
            return False
        clear(table, taker, way.units)
        seat = Seat(role, Spot(way.node, ready=False))
    table.sit(taker, seat)
    return True


def _may_use_idle(table: Table, taker: Claim, role: str) -> bool:
    """Whether a GPU that is idle may be used, or is kept for its owner."""
    account = taker.account
    return not account or table.accounts.may_borrow(account, taker.ask(role).gpus)


def give_back(table: Table) -> None:
    """Keep each pod that was to go after all, the strongest first, if those who took its room fit elsewhere."""
    for claim in sorted(table.touched, key=lambda claim: claim.rank):
        if len(claim.kept) == len(claim.staying) or (claim.displaced and not claim.served) or not claim.sizes:
            continue
        if claim.seats:
            _prefer_own(table, claim)
        if not claim.starts_anew:
            _keep_more(table, claim)


def _prefer_own(table: Table, claim: Claim) -> None:
    """Its own pods instead of as many that are to come, where they have their room again; without its master none."""
    for member in list(table.released(claim)):
        seats = [seat for seat in claim.seats if seat.role == member.role]
        if seats and not _swap(table, claim, member, seats) and member.role == MASTER:
            break
    if not claim.seats:
        table.note_given_back(claim)


def _swap(table: Table, claim: Claim, member: Member, seats: Sequence[Seat]) -> bool:
    """Keep the pod instead of one that is to come, whose place is for those who took the pod's room (149)."""
    mark, here = table.mark(), claim.at.get(member.uid)
    given_up = next((seat for seat in seats if seat.spot.node == here), seats[-1])
    table.stand(claim, given_up)
    moved = _keep_by_moving(table, claim, member)
    if moved is not None:
        heir = next((other for other in moved if given_up.spot.node in other.near), None)
        if heir is None or table.pass_on(claim, given_up, heir):
            return True
    table.roll_back(mark)
    return False


def _keep_more(table: Table, claim: Claim) -> None:
    """As many as may stay; a job that has an allowed size is left with one."""
    good = table.mark() if claim.size in claim.sizes else None
    for member in list(table.released(claim)):
        if claim.fits_more(1):
            _keep_by_moving(table, claim, member)
            good = table.mark() if claim.size in claim.sizes else good
    if good is not None:
        table.roll_back(good)


def _keep_by_moving(table: Table, claim: Claim, member: Member) -> list[Claim] | None:
    """Keep the pod, if others who are to come to its node fit elsewhere: those, else None and nothing is changed."""
    if claim.account and claim.account.over(table.gpus_of(member.requests)):
        return None
    mark = table.mark()
    moved = []
    for owner, seat in _seats_on(table, claim.at.get(member.uid)):
        if table.fits_back(claim, member):
            break
        table.stand(owner, seat)
        moved.append((owner, seat.role))
    if table.fits_back(claim, member):
        table.restore(claim, member)
        if all(seat_all(table, owner, master=role == MASTER, workers=int(role != MASTER)) for owner, role in moved):
            return [owner for owner, _ in moved]
    table.roll_back(mark)
    return None


def _seats_on(table: Table, node: int | None) -> list[tuple[Claim, Seat]]:
    """Seats on the node that may move, those of the weakest jobs first."""
    here = [] if node is None else [(c, s) for c, s in table.seated[node] if not (c.request and c.request.promised)]
    return sorted(here, key=lambda pair: -pair[0].rank)
