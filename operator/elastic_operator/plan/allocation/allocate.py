"""Decides for all jobs at once how many pods each gets, which pods are preempted, and the nodes of new pods; `result`
says why.

Teams are served by right and share value (`rounds`). Within a team the order is: priority, then jobs that have their
minimum or are admitted, then age, then uid. The decision is pure and deterministic, and does not depend on the order of
the input. After the decision is carried out, the next pass makes the same decision, with rare
exceptions (docs/limits.md).
"""

from __future__ import annotations

from itertools import count

from elastic_operator.plan.allocation.assignments import mark_ready
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.gangs import split_gangs
from elastic_operator.plan.allocation.node_requests import request_nodes
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.allocation.rounds import serve
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs

_MAX_SERVINGS = 3
"""A pass is tried up to this many times, while a preemption is futile (112, 219) or a gang is split. If the last try
splits a gang, there is one more try without gangs.
"""


class Allocator:
    """Allocates in each pass, and keeps the state, so that a pass handles only the changes since the last one (38)."""

    def __init__(self) -> None:
        self._state: AllocationState | None = None

    def __del__(self) -> None:
        if self._state is not None:
            self._state.journal.forget()

    def allocate(self, inputs: AllocationInputs) -> Allocation:
        """The allocation: the grants of all jobs. The allocation returned before must not be read any more."""
        state, still_futile = self._serve(inputs)
        self._state = state
        mark_ready(state)
        request_nodes(state)
        return Allocation(state, still_futile)

    def _serve(self, inputs: AllocationInputs) -> tuple[AllocationState, frozenset[str]]:
        """The state after a pass in which no preemption is futile (112, 219), and no gang gets only some of its places
        (144); and the preemptors (uids) whose preemption is futile in the last try, too.

        If a preemption is futile, the pass is repeated, and the preemptor may preempt no whole job; by 219 it may also
        preempt nothing that is charged to its team or to a parent of it. If a gang got only some of its places, the
        pass is repeated, and the gang gets none. If a gang is still split in the last try, no gang gets a place.
        """
        state, tried = self._state, set[str]()
        futile, in_team, split = frozenset[str](), frozenset[str](), frozenset[str]()
        for tries in count(1):
            state = state.renewed(inputs) if state else AllocationState(inputs)
            state.futile_preemptors, state.futile_in_team, state.split_gangs = futile, in_team, split
            serve(state)
            tried |= state.this_pass.tried_gangs
            futile_in_team = _futile_in_team(state)
            newly_futile = (_futile_preemptors(state) - futile) | (futile_in_team - in_team)
            newly_split = split_gangs(state)
            if not newly_split and (not newly_futile or tries >= _MAX_SERVINGS):
                break
            futile, in_team = futile | newly_futile, in_team | futile_in_team
            split |= newly_split if tries < _MAX_SERVINGS else state.queues.gangs.keys()
        assert state is not None, "served once at least"
        state.this_pass.tried_gangs |= tried
        return state, newly_futile


def _futile_preemptors(state: AllocationState) -> frozenset[str]:
    """The preemptors (uids) whose preemption of a whole job is futile: one of the job's preemptors has no pods at the
    end of the pass, or each of them has only the pods that it had before (112).
    """
    found = set[Entry]()
    for entry in (entry for entry in state.this_pass.preempted if entry.preempted and entry.loses_members):
        as_before = not any(preemptor.placements or preemptor.loses_members for preemptor in entry.preemptors)
        found.update(preemptor for preemptor in entry.preemptors if as_before or not preemptor.size)
    return frozenset(preemptor.demand.uid for preemptor in found)


def _futile_in_team(state: AllocationState) -> frozenset[str]:
    """The preemptors (uids) that get nothing, although pods are preempted for them whose team, or a parent of it, is
    theirs, too, and is left below its guarantee or its fair share (219). So are all waiting entries that are equal to
    such a preemptor: each would be the next one.
    """
    found = {
        victim.preemptor
        for victim in state.victims.standing()
        if not victim.preemptor.placements
        and any(
            account.used < max(account.guaranteed, account.share)
            for account in victim.victim_job.accounts_shared_with(victim.preemptor)
        )
    }
    kinds = {(entry.equivalence_class, entry.demand.minimum) for entry in found}
    waiting = (entry for entry in state.queues.by_uid.values() if not entry.size) if found else ()
    equal = (entry for entry in waiting if (entry.equivalence_class, entry.demand.minimum) in kinds)
    return frozenset(entry.demand.uid for entry in (*found, *equal))


def allocate(inputs: AllocationInputs) -> Allocation:
    """The allocation: the grants of all jobs.

    A job without sizes is ending: it gets nothing new, and its pods can be reclaimed one by one.
    """
    return Allocator().allocate(inputs)
