"""Gives one job its minimum: all of it or nothing.

First the job takes free room, within its team's limits. Then it preempts others: first pods that cost less than a
running job, then whole running jobs. A job whose pods wait for new nodes takes free room only. A job that has waited
too long holds room for a part of its minimum (37).
"""

from __future__ import annotations

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.equivalence import refusal_key
from elastic_operator.plan.allocation.node_board import Placement
from elastic_operator.plan.allocation.node_requests import is_requested_by_others, may_request_nodes
from elastic_operator.plan.allocation.placement import find_placement, place_all
from elastic_operator.plan.allocation.preemption.candidates import Candidates
from elastic_operator.plan.allocation.preemption.preempt import preempt
from elastic_operator.plan.allocation.quota_refusal import IDLE, Rule
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.allocation.supply import Supplies
from elastic_operator.plan.facts.requirements import Load
from elastic_worker.contract import ROLE_MASTER

MAX_NOMINATIONS_PER_PASS = 32
"""A pass makes room for at most this many foreign pods: if it served thousands, all jobs would wait for them (44).

A gang is served as a whole or not at all. The next pass serves the remaining pods. It follows at once, because each pod
that got a place is nominated, and a nomination wakes the loop.
"""


def admit(state: AllocationState, entry: Entry) -> bool:
    """Give the job its minimum, or leave it as it is. Returns whether it has its minimum."""
    minimum = entry.demand.minimum
    if entry.preempted and _may_use_idle(state, entry, entry.gpus_missing(minimum)):
        state.fill_back_to(entry, minimum)
    state.journal.set(entry, "admitted", entry.has_minimum or _complete(state, entry))
    if entry.admitted:
        state.journal.set(entry, "has_placements_set_aside", False)
    elif entry.preempted:
        state.release_all(entry)
    return entry.admitted


def _complete(state: AllocationState, entry: Entry) -> bool:
    need = entry.gpus_missing(entry.demand.minimum)
    refused = state.quota_refusal(entry, need)
    if (
        entry.is_failed_size(entry.demand.minimum, state.now)
        or (refused and refused.is_final)
        or is_requested_by_others(state, entry, need)
    ):
        return False
    if entry.demand.provisioning_pods and not entry.demand.shape.pinnable:
        return False  # kube-scheduler has reported that the room does not suit
    if (refused is None or entry.is_foreign_pod) and place_all(state, entry, entry.missing_roles(entry.demand.minimum)):
        return True
    if entry.demand.provisioning_pods or state.preemption_bar(entry):
        return False
    node = state.board.number.get(entry.reserved_node)
    if node is not None and (_preempt_any(state, entry, only=node) or _keep_where_reserved(state, entry, node)):
        return True  # on the node that is reserved for the foreign pod (45)
    _, workers = entry.missing(entry.demand.minimum)
    key, infeasible = None if entry.size else ("minimum", refusal_key(state, entry)), state.this_pass.infeasible
    if key and infeasible.covers(key, workers):
        return False
    if (
        entry.is_foreign_pod
        and not state.this_pass.current_gang
        and state.this_pass.pods_placed >= MAX_NOMINATIONS_PER_PASS
    ):
        return False
    if _preempt_any(state, entry, only=None):
        state.this_pass.pods_placed += entry.is_foreign_pod
        return True
    if key:
        (infeasible.refuse if entry in state.victims.over_eviction_limit else infeasible.add)(key, workers)
    return False


def _preempt_any(state: AllocationState, entry: Entry, *, only: int | None) -> bool:
    """Make room for the minimum by preemption: parts of jobs and incomplete jobs first, then whole running jobs.

    On `only` one node, the units are taken in this order anyway, so one try is enough.
    """
    need = entry.gpus_missing(entry.demand.minimum)
    for ends_jobs in (False, True) if only is None else (True,):
        candidates = Candidates(state, entry, need, ends_jobs=ends_jobs)
        if any(preempt(state, entry, roles, candidates, only=only) for roles in _orders(entry)):
            return True
    return False


def _keep_where_reserved(state: AllocationState, entry: Entry, node: int) -> bool:
    """Keep the room on the node that is reserved for a pod of a gang, if the node could be cleared (171).

    The rules may forbid in this pass what they allowed before: the gang preempted a job of a team, and the job does not
    have its minimum again from the team's other jobs yet. For this moment the team holds less, so no pod of the team
    may be preempted.
    """
    if not entry.gang or not state.inputs.reclaiming:
        return False
    loads: list[Load] = [member for one, member in state.residents[node].values() if one.demand.preemptible]
    loads += [one.requirements(placement.role).shape for one, placement in state.placed[node] if not one.promised_node]
    if not state.board.fits_without(entry.master, node, loads):
        return False
    state.place(entry, Placement(ROLE_MASTER, node, ready=False))
    return True


def _may_use_idle(state: AllocationState, entry: Entry, need: int) -> bool:
    """Whether the entry may use `need` idle GPUs."""
    return entry.is_foreign_pod or state.quota_refusal(entry, need, *IDLE) is None


def _orders(entry: Entry) -> list[list[str]]:
    """The orders in which to place the missing pods. If the master has another shape, it may take room that workers
    need, so both orders are tried.
    """
    roles = entry.missing_roles(entry.demand.minimum)
    return [roles] if entry.master is entry.worker or len(set(roles)) < 2 else [roles, roles[::-1]]


def set_aside_for_starving(state: AllocationState, entry: Entry) -> None:
    """Set room aside for a part of the minimum, if all of it would fit on empty nodes and under the limits (37)."""
    need, (master, workers) = entry.gpus_missing(entry.demand.minimum), entry.missing(entry.demand.minimum)
    supplies, path = Supplies(state), entry.account.path if entry.account else ()
    if (
        may_request_nodes(state, entry)
        or state.quota_refusal(entry, need, Rule.GUARANTEE)
        or supplies.on_empty_nodes(entry.master) < master
        or supplies.on_empty_nodes(entry.worker) < workers
        or any(account.foreign + need > account.limit for account in path)
    ):
        return
    for role in entry.missing_roles(entry.demand.minimum):
        may_use = _may_use_idle(state, entry, entry.requirements(role).gpus)
        if may_use and (placement := find_placement(state, entry, role)):
            state.journal.set(entry, "has_placements_set_aside", True)
            state.place(entry, placement)
