"""Places pods of a job in free room: all of them, or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.node_board import Placement
from elastic_operator.plan.allocation.state import AllocationState
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER


def find_placement(state: AllocationState, entry: Entry, role: str) -> Placement | None:
    """The best free place for one more pod of the job."""
    return state.board.find(role, entry.requirements(role), entry.occupied_nodes)


def place_all(state: AllocationState, entry: Entry, *, master: bool, workers: int) -> bool:
    """Place `workers` workers, and with `master` also a master. If not all of them fit, nothing is changed, and the
    result is False.
    """
    if not master:
        return _place_alike(state, entry, [ROLE_WORKER] * workers)
    if state.board.is_infeasible(entry.master, 1):
        return False
    if entry.master is entry.worker:
        return _place_alike(state, entry, [ROLE_MASTER, *[ROLE_WORKER] * workers])
    return any(
        _place_with_master_at(state, entry, placement, workers)
        for placement in _master_placements(state, entry, workers)
    )


def _master_placements(state: AllocationState, entry: Entry, workers: int) -> Sequence[Placement]:
    """The placements to try for the master, the best one first. If workers need room, too, all placements are tried,
    because the workers may need the master's best one.
    """
    if workers and state.board.is_infeasible(entry.worker, workers):
        return []
    if workers:
        return state.board.placements(ROLE_MASTER, entry.master, entry.occupied_nodes)
    placement = find_placement(state, entry, ROLE_MASTER)
    return [placement] if placement else []


def _place_with_master_at(state: AllocationState, entry: Entry, placement: Placement, workers: int) -> bool:
    mark = state.journal.mark()
    state.place(entry, placement)
    if _place_roles(state, entry, [ROLE_WORKER] * workers):
        return True
    state.journal.roll_back(mark)
    return False


def _place_alike(state: AllocationState, entry: Entry, roles: Sequence[str]) -> bool:
    """Place pods of one shape, and remember the number that did not fit."""
    if not roles or state.board.is_infeasible(entry.worker, len(roles)):
        return not roles
    mark = state.journal.mark()
    if _place_roles(state, entry, roles):
        return True
    state.journal.roll_back(mark)
    state.board.remember_infeasible(entry.worker, len(roles))
    return False


def _place_roles(state: AllocationState, entry: Entry, roles: Iterable[str]) -> bool:
    for role in roles:
        placement = find_placement(state, entry, role)
        if placement is None:
            return False
        state.place(entry, placement)
    return True
