"""Which entries are equivalent: one answer holds for all of them.

Thousands of equal jobs of one team may wait. So the answer about one job is remembered under a key that the other jobs
share (38); `pass_memo` says for how long. Four questions have a key:

    equiv.   which nodes may the entry have, and which pods may it preempt? (`equivalence_key`)
    refusal  which of these preemptions do the limits on evictions allow? (`refusal_key`)
    minim.   does the entry get its minimum? (`minimum_key`)
    growth   does the job get its next size? (`scale_up_queues.growth_key`)

An unnecessary part of a key only costs time. A missing part denies a job GPUs that it could get. The parts of the keys,
and why the answer depends on each; "alone" are entries that share their key with no other entry:

                          equiv. refusal  minim. growth
    equivalence class     x      x        x      x       the nodes for its pods, and the teams that it may preempt
    may_preempt           x      x        x      x       whether it may preempt at all
    may take whole jobs   x      x        x      (1)     whether it may preempt whole jobs
    may take in its team  x      x        x      (1)     whether it may preempt jobs of its team and of its parents
    times preempted       x      x        x      alone   whether it may still borrow
    a gang is served      x      x        x              the price of an option differs for gangs
    limits on evictions          x        x      (1)     how many more pods may be evicted for it
    waits behind others          x        x      (2)     whether these limits let it begin to preempt
    minimum                               x              what it lacks
    failed size, starves                  x              whether it may have its minimum, and by which right
    reserved node                         x              where a foreign pod is tried first
    what it lacks                                x       for its next size
    waits to grow                                alone   from when it may grow or preempt
    pods of its own                       alone  alone   which of these it keeps; where they are does not matter

(1) `individually_limited` jobs are added to the queues of `scale_up_queues` one by one in each pass, because groups
live longer than a pass.
(2) If one job of a group cannot grow, only those that come after it are given up (`scale_up_queues`).
"""

from __future__ import annotations

from collections.abc import Hashable

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.state import AllocationState


def equivalence_key(state: AllocationState, entry: Entry) -> Hashable:
    """The key of entries that may have the same nodes and preempt the same pods as this entry, apart from the limits on
    evictions.

    The key has neither the entry's own pods nor a size. A caller whose question depends on a size adds the size to the
    key; a caller whose question depends on the entry's own pods does not use the key for entries with pods.
    """
    rights = state.preemption_bar(entry) is None, state.may_preempt_whole_jobs(entry), state.may_preempt_in_team(entry)
    return entry.equivalence_class, rights, entry.times_preempted, bool(state.this_pass.current_gang)


def refusal_key(state: AllocationState, entry: Entry) -> Hashable:
    """The key of entries with the same refusals as this entry, those by the limits on evictions included."""
    return equivalence_key(state, entry), state.victims.limits_on(entry)


def minimum_key(state: AllocationState, entry: Entry) -> Hashable | None:
    """The key of entries whose minimum is tried in the same way; None for an entry that has pods of its own."""
    demand = entry.demand
    if entry.size or entry.preempted or demand.provisioning_pods:
        return None
    return (
        refusal_key(state, entry),
        entry.demand.minimum,
        demand.failed and (demand.failed.size, demand.failed.until),
        state.starves(entry),
        entry.reserved_node,
    )


def individually_limited(state: AllocationState) -> set[Entry]:
    """The jobs that differ from others of their class, because an earlier try of this pass failed for them, or because
    pods were evicted for them within the last minute.

    The known preemptors include gangs, by name. No entry has such a name, so gangs are left out: their pods do not
    grow.
    """
    uids = state.futile_preemptors | state.victims.known_preemptors
    return {state.queues.by_uid[uid] for uid in uids & state.queues.by_uid.keys()}
