"""Places pods of a job in free room: all of them, or none."""

from __future__ import annotations

from collections.abc import Sequence

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.node_board import Placement
from elastic_operator.plan.allocation.state import AllocationState
from elastic_worker.contract import ROLE_MASTER


def find_placement(state: AllocationState, entry: Entry, role: str) -> Placement | None:
    """The best free place for one more pod of the job."""
    return state.board.find(role, entry.requirements(role), entry.occupied_nodes)


def place_all(state: AllocationState, entry: Entry, roles: Sequence[str]) -> bool:
    """Place pods of these roles, the master first. If not all fit, nothing is changed, and the result is False."""
    if entry.master is entry.worker or ROLE_MASTER not in roles:
        return _place_alike(state, entry, roles)
    board, workers = state.board, roles[1:]
    if board.is_infeasible(entry.master, 1) or (workers and board.is_infeasible(entry.worker, len(workers))):
        return False
    if not workers:
        return _place_each(state, entry, roles)
    # The workers may need the best place of the master, so all its places are tried.
    places = board.placements(ROLE_MASTER, entry.master, entry.occupied_nodes)
    return any(_place_with_master_at(state, entry, placement, workers) for placement in places)


def _place_with_master_at(state: AllocationState, entry: Entry, placement: Placement, workers: Sequence[str]) -> bool:
    mark = state.journal.mark()
    state.place(entry, placement)
    return state.journal.keep_if(_place_each(state, entry, workers), mark)


def _place_alike(state: AllocationState, entry: Entry, roles: Sequence[str]) -> bool:
    """Place pods of one shape, and remember the number that did not fit."""
    if not roles or state.board.is_infeasible(entry.worker, len(roles)):
        return not roles
    mark = state.journal.mark()
    if state.journal.keep_if(_place_each(state, entry, roles), mark):
        return True
    state.board.remember_infeasible(entry.worker, len(roles))
    return False


def _place_each(state: AllocationState, entry: Entry, roles: Sequence[str]) -> bool:
    for role in roles:
        placement = find_placement(state, entry, role)
        if placement is None:
            return False
        state.place(entry, placement)
    return True
