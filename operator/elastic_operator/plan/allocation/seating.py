"""Seats pods of a job in free room: all that are asked for, or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elastic_operator.plan.allocation.board import Spot
from elastic_operator.plan.allocation.entry import MASTER, WORKER, Claim, Seat
from elastic_operator.plan.allocation.state import Table


def find_seat(table: Table, claim: Claim, role: str) -> Seat | None:
    """The best free place for one more pod of the job."""
    spot = table.board.find(claim.ask(role), claim.near)
    return Seat(role, spot) if spot is not None else None


def seat_all(table: Table, claim: Claim, *, master: bool, workers: int) -> bool:
    """Seat a master (if asked for) and so many workers: all of them, or none and False."""
    if not master:
        return _seat_alike(table, claim, [WORKER] * workers)
    if table.board.known_short(claim.master, 1):
        return False
    if claim.master is claim.worker:
        return _seat_alike(table, claim, [MASTER, *[WORKER] * workers])
    return any(_seat_around(table, claim, spot, workers) for spot in _master_spots(table, claim, workers))


def _master_spots(table: Table, claim: Claim, workers: int) -> Sequence[Spot]:
    """Where the master may go: anywhere if workers need room too, as its best place may be the one they need."""
    if workers and table.board.known_short(claim.worker, workers):
        return []
    if workers:
        return table.board.spots(claim.master, claim.near)
    spot = table.board.find(claim.master, claim.near)
    return [spot] if spot else []


def _seat_around(table: Table, claim: Claim, spot: Spot, workers: int) -> bool:
    mark = table.mark()
    table.sit(claim, Seat(MASTER, spot))
    if _seat_roles(table, claim, [WORKER] * workers):
        return True
    table.roll_back(mark)
    return False


def _seat_alike(table: Table, claim: Claim, roles: Sequence[str]) -> bool:
    """As many pods of one shape, with a memory for what did not fit."""
    if not roles or table.board.known_short(claim.worker, len(roles)):
        return not roles
    mark = table.mark()
    if _seat_roles(table, claim, roles):
        return True
    table.roll_back(mark)
    table.board.remember_short(claim.worker, len(roles))
    return False


def _seat_roles(table: Table, claim: Claim, roles: Iterable[str]) -> bool:
    for role in roles:
        seat = find_seat(table, claim, role)
        if seat is None:
            return False
        table.sit(claim, seat)
    return True
