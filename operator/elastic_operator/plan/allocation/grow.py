"""Brings jobs to allowed sizes and grows them. Within a team, the job that is least above its minimum grows first.

Growth takes free room, and GPUs of other teams that its team is entitled to. It takes nothing from its own team.
"""

from __future__ import annotations

from elastic_operator.plan.allocation.accounts import Entitlement
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.equivalence import refusal_key
from elastic_operator.plan.allocation.node_requests import is_requested_by_others
from elastic_operator.plan.allocation.pass_memo import Question
from elastic_operator.plan.allocation.placement import place_all
from elastic_operator.plan.allocation.preemption.candidates import Candidates
from elastic_operator.plan.allocation.preemption.preempt import preempt
from elastic_operator.plan.allocation.state import AllocationState

_MAX_TIMES_PREEMPTED = 2
"""An entry that other teams have preempted this many times in a pass borrows nothing more in that pass (34)."""


def round_sizes_down(state: AllocationState) -> None:
    """Shrink each job that lies between two allowed sizes to the lower one."""
    for entry in sorted(state.queues.between_sizes | state.this_pass.changed, key=lambda entry: entry.position):
        if entry.admitted and entry.demand.sizes and entry.size not in entry.demand.sizes:
            below = [n for n in entry.demand.sizes if n < entry.size]
            if below:
                state.shrink(entry, below[-1])


def grow(state: AllocationState, entry: Entry, entitlement: Entitlement) -> bool:
    """Give the job its next allowed size, if it may have that size and all its new pods fit; returns whether it did."""
    state.victims.over_eviction_limit.pop(entry, None)
    size = entry.next_step(state.now)
    if (
        size is None
        or entry.is_failed_size(size, state.now)
        or state.now < entry.demand.grow_at(size)
        or entry.demand.provisioning_pods
    ):
        return False
    need, account = entry.gpus_missing(size), entry.account
    if account is None:
        return _grow_freely(state, entry, size)
    right = account.entitlement(need)
    if right > entitlement:
        return False
    refused = state.quota_refusal(entry, need)
    if (
        not may_borrow_again(entry, right)
        or (refused and refused.is_final)
        or is_requested_by_others(state, entry, need)
    ):
        return False
    if refused is None and _grow_freely(state, entry, size):
        return True
    return state.now >= entry.demand.bar.until and _grow_by_preemption(state, entry, size)


def may_borrow_again(entry: Entry, right: Entitlement) -> bool:
    """Whether the entry may borrow: not if other teams preempted it twice in this pass (34)."""
    return right is not Entitlement.BORROWED or entry.times_preempted < _MAX_TIMES_PREEMPTED


def _grow_freely(state: AllocationState, entry: Entry, size: int) -> bool:
    """Grow into free room. The job keeps released members again before it gets new pods."""
    mark = state.journal.mark()
    if entry.loses_members and not entry.replaces_master:
        state.fill_back_to(entry, size)
    return state.journal.keep_if(place_all(state, entry, entry.missing_roles(size)), mark)


def _grow_by_preemption(state: AllocationState, entry: Entry, size: int) -> bool:
    """Grow by preemption of other teams' pods, if the job's team is entitled to these (33).

    Each round tries again what the last round refused, because a preemption since then may have entitled the team to
    more. While nothing has changed, the answer is the same (180).
    """
    master, workers = entry.missing(size)
    key, short = ("growth", refusal_key(state, entry), master), state.this_pass.infeasible
    if short.covers(key, workers) or state.this_pass.answers.get(Question.CANNOT_GROW, (key, workers)):
        return False
    if preempt(
        state, entry, entry.missing_roles(size), Candidates(state, entry, entry.gpus_missing(size), growing=True)
    ):
        return True
    if entry in state.victims.over_eviction_limit:
        short.refuse(key, workers)
    else:
        short.add(key, workers)
        state.this_pass.answers.put(Question.CANNOT_GROW, (key, workers))
    return False
