"""Seats pods of a job in free room: all of them, or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.node_board import Seat
from elastic_operator.plan.allocation.state import AllocationState
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER


def find_seat(state: AllocationState, entry: Entry, role: str) -> Seat | None:
    """The best free place for one more pod of the job."""
    return state.board.find(role, entry.requirements(role), entry.occupied_nodes)


def seat_all(state: AllocationState, entry: Entry, *, master: bool, workers: int) -> bool:
    """Seat `workers` workers, and with `master` also a master. If not all of them fit, nothing is changed, and the
    result is False.
    """
    if not master:
        return _seat_alike(state, entry, [ROLE_WORKER] * workers)
    if state.board.is_infeasible(entry.master, 1):
        return False
    if entry.master is entry.worker:
        return _seat_alike(state, entry, [ROLE_MASTER, *[ROLE_WORKER] * workers])
    return any(_seat_with_master_at(state, entry, seat, workers) for seat in _master_seats(state, entry, workers))


def _master_seats(state: AllocationState, entry: Entry, workers: int) -> Sequence[Seat]:
    """The seats to try for the master, the best one first. If workers need room, too, all seats are tried, because the
    workers may need the master's best one.
    """
    if workers and state.board.is_infeasible(entry.worker, workers):
        return []
    if workers:
        return state.board.seats(ROLE_MASTER, entry.master, entry.occupied_nodes)
    seat = find_seat(state, entry, ROLE_MASTER)
    return [seat] if seat else []


def _seat_with_master_at(state: AllocationState, entry: Entry, seat: Seat, workers: int) -> bool:
    mark = state.journal.mark()
    state.seat(entry, seat)
    if _seat_roles(state, entry, [ROLE_WORKER] * workers):
        return True
    state.journal.roll_back(mark)
    return False


def _seat_alike(state: AllocationState, entry: Entry, roles: Sequence[str]) -> bool:
    """Seat pods of one shape, and remember the number that did not fit."""
    if not roles or state.board.is_infeasible(entry.worker, len(roles)):
        return not roles
    mark = state.journal.mark()
    if _seat_roles(state, entry, roles):
        return True
    state.journal.roll_back(mark)
    state.board.remember_infeasible(entry.worker, len(roles))
    return False


def _seat_roles(state: AllocationState, entry: Entry, roles: Iterable[str]) -> bool:
    for role in roles:
        seat = find_seat(state, entry, role)
        if seat is None:
            return False
        state.seat(entry, seat)
    return True
