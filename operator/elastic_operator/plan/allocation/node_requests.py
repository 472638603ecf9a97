"""Decides which jobs request new nodes of autoscaled pools, by pods without a node that wait for kube-scheduler
(49).

A job requests nodes for the missing pods of its minimum, if the job got nothing in the pass and only room was missing.
The requests are decided at the end of each pass, in the order of jobs. The pods of a request are provisioning pods.
They hold no room, and nothing is preempted for them. Their GPUs count under the limits of their team, so the team's
other jobs cannot use this part of the limits. Once there is room for the minimum, on new nodes or old ones, the job has
its placements there, and kube-scheduler binds the pods.

kube-scheduler binds a provisioning pod wherever it fits. So no provisioning pod is created while it would fit into room
that is meant for other pods.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from elastic_operator.plan.allocation.accounts import Account
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.node_board import Placement
from elastic_operator.plan.allocation.pass_memo import Question
from elastic_operator.plan.allocation.quota_refusal import Rule
from elastic_operator.plan.allocation.state import AllocationState

_Places = Sequence[tuple[int, Collection[tuple[Entry, Placement]]]]
"""The nodes with room that is meant for planned pods, each with these pods."""


def is_requested_by_others(state: AllocationState, entry: Entry, need: int) -> bool:
    """Whether `need` more GPUs for the entry would leave too few, under the limits, for the nodes that other jobs of
    its team have requested. Jobs of lower priority do not count.
    """
    account, queues = entry.account, state.queues
    most = queues.provisioning_gpus[account] if account else 0
    if account is None or not most or state.quota_refusal(entry, need + most, Rule.LIMIT) is None:
        return False
    requested = _requested_by(state, account, entry.demand.priority)
    if entry in queues.provisioning[account] and may_request_nodes(state, entry):
        requested -= entry.gpus_missing(entry.demand.minimum)
    return requested > 0 and state.quota_refusal(entry, need + requested, Rule.LIMIT) is not None


def _requested_by(state: AllocationState, account: Account, priority: int) -> int:
    """The GPUs for which jobs of at least that priority may request nodes now; counted once between two changes."""
    known = state.this_pass.answers.get(Question.REQUESTED_GPUS, (account, priority))
    if known is None:
        first = (one for one in state.queues.provisioning[account] if one.demand.priority >= priority)
        known = sum(one.gpus_missing(one.demand.minimum) for one in first if may_request_nodes(state, one))
        state.this_pass.answers.put(Question.REQUESTED_GPUS, (account, priority), known)
    return known


def may_request_nodes(state: AllocationState, entry: Entry) -> bool:
    """Whether the entry lacks its minimum, may request nodes for it now, and its team may use their GPUs."""
    demand = entry.demand
    if demand.node_request is None or not demand.wants_pods or entry.admitted or entry.placements:
        return False
    if entry.is_failed_size(entry.demand.minimum, state.now) or not (
        demand.provisioning_pods or state.now >= demand.node_request.begins_at
    ):
        return False
    return state.quota_refusal(entry, entry.gpus_missing(entry.demand.minimum), Rule.GUARANTEE, Rule.LIMIT) is None


def request_nodes(state: AllocationState) -> None:
    """Decide which entries request nodes. All entries must have been served before."""
    may_lack = state.queues.unserved | state.this_pass.changed
    entries = [entry for entry in may_lack if entry.demand.node_request is not None]
    places = [(node, placed) for node, placed in enumerate(state.placed) if placed] if entries else []
    for entry in sorted(entries, key=lambda entry: entry.position):
        if may_request_nodes(state, entry) and not _would_take_reserved_room(state, entry, places):
            state.request_nodes(entry)


def _would_take_reserved_room(state: AllocationState, entry: Entry, to_come: _Places) -> bool:
    """Whether any missing pod of the entry would fit into room that is meant for planned pods, or into GPUs that are
    kept for the teams that own them.

    If all missing pods are pending already, kube-scheduler has tried the room that is free now, and rejected it.
    """
    roles = entry.missing_roles(entry.demand.minimum)
    all_wait = len(entry.demand.provisioning_pods) >= len(roles)
    missing = [entry.requirements(role) for role in dict.fromkeys(roles)]
    keeps = state.quota_refusal(entry, entry.gpus_missing(entry.demand.minimum), Rule.LENDING)
    if keeps and any(state.board.fits(requirements, node) for requirements in missing for node in requirements.nodes):
        return True
    for node, placed in to_come:
        coming = [
            other.requirements(placement.role).shape
            for other, placement in placed
            if not (placement.ready and all_wait)
        ]
        if coming and any(state.board.fits_without(requirements, node, coming) for requirements in missing):
            return True
    return False
