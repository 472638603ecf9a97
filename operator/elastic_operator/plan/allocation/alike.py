"""Which entries are alike: the same question about them has the same answer.

Thousands of jobs of one team may wait for the same. So what is found out about one of them is remembered under a key
that the others share (38); `pass_memo` says for how long. A key with too much in it only costs time. One that lacks
something denies a job what it should get.
"""

from __future__ import annotations

from collections.abc import Hashable

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.state import AllocationState


def alike(state: AllocationState, entry: Entry) -> Hashable:
    """The key of entries that may go where this one may, and take from whom it may, beside the limits on evictions.

    Callers leave out entries whose own pods matter, or add what else is asked: a size, a number of pods.
    """
    takes = entry.takes(state.now), state.may_take_whole_jobs(entry)
    return entry.kind, takes, entry.times_preempted, bool(state.serving)


def refused_alike(state: AllocationState, entry: Entry) -> Hashable:
    """The key of entries to which what this one wants is refused as well, by the limits on evictions too."""
    return alike(state, entry), state.victims.limits_on(entry)


def singular(state: AllocationState) -> set[Entry]:
    """The jobs that are not like others of their kind, because of what earlier tries and minutes have done for them."""
    uids = state.in_vain | state.victims.known_takers
    return {entry for entry in map(state.roster.find, uids) if entry is not None}
