"""Gangs of foreign pods: all pods of a gang that wait get their places in one pass, or none does (144).

A Job that needs all of its pods cannot work with some of them. So the operator preempts no pod for a part of a gang. A
gang keeps the places that were promised to it, because the pods there are being deleted already. While the nodes of a
gang are cleared, the gang is served before all others (171).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from elastic_operator.plan.allocation.admit import MAX_NOMINATIONS_PER_PASS, admit
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.state import AllocationState

MAX_GANG_PODS_PER_PASS = 256
"""A pass looks for places for gangs of this many pods in all, and for one gang at least.

A gang that gets nothing costs a plan for nearly all of its pods. The next pass tries the other gangs.
"""


def flavors_of_large_gangs(state: AllocationState) -> set[str]:
    """The flavors of the large gangs that wait for nodes which are reserved for them (217)."""
    waiting = (gang for gang in state.queues.gangs.values() if any(entry.reserved_node for entry in gang))
    return {flavor for gang in waiting for flavor in _flavors_if_large(gang)}


def _flavors_if_large(gang: Collection[Entry]) -> set[str]:
    """The flavors of the gang, if more of its pods wait than a pass serves one by one."""
    return {entry.demand.shape.flavor for entry in gang} if len(gang) > MAX_NOMINATIONS_PER_PASS else set()


def serve_gang(state: AllocationState, gang: Sequence[Entry]) -> None:
    """Give each of these pods a place, or change nothing.

    Answers of this try that pods do not fit are forgotten afterwards: the pods may not fit only because a part of the
    gang is placed.
    """
    name, this_pass = gang[0].gang, state.this_pass
    over_budget = this_pass.tried_gangs and this_pass.tried_pods + len(gang) > MAX_GANG_PODS_PER_PASS
    if this_pass.pods_placed >= MAX_NOMINATIONS_PER_PASS or (over_budget and name not in this_pass.tried_gangs):
        return
    this_pass.tried_pods += len(gang)
    this_pass.tried_gangs.add(name)
    this_pass.current_gang, known = name, this_pass.infeasible
    this_pass.infeasible = known.copy()
    mark, placed = state.journal.mark(), this_pass.pods_placed
    took = {entry: len(entry.victims) for entry in gang}
    served = _admit_all(state, gang)
    taken = [one.pod.uid for entry in gang for one in entry.victims[took[entry] :]]
    if not served or state.victims.note_if_over_eviction_limit(gang[0], taken):
        state.undo_preemption(mark)
        this_pass.pods_placed = placed
    elif taken:
        this_pass.flavors_of_large_gangs |= _flavors_if_large(gang)
    this_pass.current_gang, this_pass.infeasible = "", known


def _admit_all(state: AllocationState, gang: Sequence[Entry]) -> bool:
    """Give each of these pods a place; False if one gets none.

    The end of a job clears more nodes than the one that is needed. Each of these goes to the pod that it is reserved
    for, before another pod of the gang takes it as free room and leaves its own node: a pod that is nominated again
    costs kube-scheduler another try, and the search for its new place costs the pass (171).
    """
    reserved: dict[str, list[Entry]] = {}
    for entry in gang:
        reserved.setdefault(entry.reserved_node, []).append(entry)
    for entry in gang:
        before = len(entry.victims)
        if not admit(state, entry):
            return False
        for node in sorted({victim.pod.node for victim in entry.victims[before:] if victim.pod.node}):
            for other in reserved.get(node, ()):
                if not other.admitted:
                    state.hold_promised(other)
    return True


def gangs_being_cleared_for(state: AllocationState) -> list[str]:
    """The gangs for which nodes are being cleared: some of their pods have a node reserved that is not free yet."""
    gangs = state.queues.gangs.items()
    return sorted(name for name, gang in gangs if any(entry.reserved_node and not entry.admitted for entry in gang))


def split_gangs(state: AllocationState) -> frozenset[str]:
    """The gangs that got places for only some of their pods. Places that were promised before do not count."""
    return frozenset(name for name, gang in state.queues.gangs.items() if _is_split(gang))


def _is_split(gang: set[Entry]) -> bool:
    if any(entry.may_be_split for entry in gang):
        return False
    placed = any(entry.admitted and not entry.promised_node for entry in gang)
    return placed and not all(entry.admitted for entry in gang)
