"""The order in which jobs are served: by right, then by share value, then by the order within each team (32).

A pass has three rounds: guarantees, fair shares, GPUs that no other team uses. In each round minima come before growth.
The next team is always the one with the lowest share value, and it gets one job's minimum or one step of growth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from elastic_operator.plan.allocation.accounts import Account, Entitlement
from elastic_operator.plan.allocation.admit import admit, set_aside_for_starving
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.equivalence import individually_limited, minimum_key
from elastic_operator.plan.allocation.gangs import flavors_of_large_gangs, gangs_being_cleared_for, serve_gang
from elastic_operator.plan.allocation.grow import grow, may_borrow_again, round_sizes_down
from elastic_operator.plan.allocation.pass_memo import Question
from elastic_operator.plan.allocation.preemption.candidates import preemptible_gpus, preemptible_gpus_of_team
from elastic_operator.plan.allocation.preemption.preempt import fill_back
from elastic_operator.plan.allocation.scale_up_queues import ScaleUpQueue
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.allocation.turn_order import lowest_first

_MAX_REPETITIONS = 8
"""The rounds of a pass are repeated at most this many times, even if they still change something (32)."""


def serve(state: AllocationState) -> None:
    """Serve all jobs and foreign pods.

    The rounds are repeated while they change anything, because another team may now be entitled to GPUs that a team
    borrowed in the last round (32).
    """
    state.this_pass.flavors_of_large_gangs = flavors_of_large_gangs(state)
    for _ in range(_MAX_REPETITIONS):
        before = state.journal.mark()
        admissions = Admissions(state)
        for entitlement in Entitlement:
            admissions.serve(entitlement)
            fill_back(state)
            _grow_all(state, entitlement)
            fill_back(state)
        round_sizes_down(state)
        if state.journal.mark() == before:
            break
        state.divide()
    for entry in state.this_pass.changed:
        if entry.has_placements_set_aside:
            state.journal.set(entry, "placements", ())  # the room stays set aside until the end of the pass


class Admissions:
    """The entries whose minimum is not served yet. Each is tried once per round."""

    def __init__(self, state: AllocationState) -> None:
        self._state = state
        self._tried: set[Entry] = set()
        self._set_aside_for: set[tuple[str, str]] = set()

    def serve(self, entitlement: Entitlement) -> None:
        """One round: first gangs whose nodes are being cleared (171); then jobs that run or were started, and the jobs
        that come before these in their teams; then all others.

        An entry that is preempted in this round is tried again.
        """
        state, self._tried = self._state, set()
        state.this_pass.begin_round()
        for name in gangs_being_cleared_for(state):
            self._serve_gang(name, entitlement)
        while waiting := [
            entry for entry in (state.queues.unserved | state.this_pass.changed) - self._tried if _waits(entry)
        ]:
            last: dict[str, int] = {}
            for entry in waiting:
                if entry.demand.is_admitted:
                    last[entry.team] = max(entry.position, last.get(entry.team, -1))
            for first in (True, False):
                some = [entry for entry in waiting if (entry.position <= last.get(entry.team, -1)) is first]
                _take_turns(state, some, lambda entry: self._serve(entry, entitlement))

    def _serve(self, entry: Entry, entitlement: Entitlement) -> None:
        """Serve the entry once in this round, after the preempted entries of its team that come before it."""
        if entry in self._tried:
            return
        self._tried.add(entry)
        self._state.victims.over_eviction_limit.pop(entry, None)
        preempted = self._state.this_pass.preempted
        before = [other for other in preempted if other.team == entry.team and other.position < entry.position]
        for other in sorted(before, key=lambda other: other.position):
            if _waits(other):
                self._serve(other, entitlement)
        if entry.gang:
            self._serve_gang(entry.gang, entitlement)
        else:
            self._serve_alone(entry, entitlement)

    def _serve_alone(self, entry: Entry, entitlement: Entitlement) -> None:
        key = minimum_key(self._state, entry)
        if key and self._state.this_pass.answers.get(Question.REFUSED, (entitlement, key)):
            return
        need = entry.gpus_missing(entry.demand.minimum)
        right = _entitlement_for(self._state, entry, need)
        may_use = may_borrow_again(entry, right) or preemptible_gpus(self._state, entry, entry) >= need  # its own pods
        if right <= entitlement and may_use:
            admitted = admit(self._state, entry)
            if not admitted and right == entitlement:
                self._set_aside(entry)
        if key and not entry.admitted:
            self._state.this_pass.answers.put(Question.REFUSED, (entitlement, key))

    def _serve_gang(self, name: str, entitlement: Entitlement) -> None:
        """Serve all waiting pods of the gang, by the right that their team has to all of them together (144).

        A gang that may be split is served pod by pod, if its team has no guarantee for all its pods, or if there is no
        room for all of them.
        """
        state = self._state
        gang = sorted((entry for entry in state.queues.gangs[name] if _waits(entry)), key=lambda entry: entry.position)
        self._tried.update(gang)
        if not gang or name in state.split_gangs:
            return
        kinds = Counter(minimum_key(state, entry) for entry in gang)
        key = None if None in kinds else frozenset(kinds.items())
        if key and state.this_pass.answers.get(Question.REFUSED, (entitlement, key)):
            return
        for entry in gang:  # tried again: whether it is over a limit on evictions is found again
            state.victims.over_eviction_limit.pop(entry, None)
        need = Counter[Account | None]()
        for entry in gang:
            need[entry.account] += entry.gpus_missing(entry.demand.minimum)
        right = max(_entitlement_for(state, entry, need[entry.account]) for entry in gang)
        may_be_split = all(entry.may_be_split for entry in gang)
        if right is Entitlement.GUARANTEED or not may_be_split:
            if right <= entitlement and may_borrow_again(gang[0], right):
                serve_gang(state, gang)
            may_be_split &= name in state.this_pass.tried_gangs
        if may_be_split and not gang[0].admitted:
            for entry in gang:
                self._serve_alone(entry, entitlement)
        elif key and not gang[0].admitted:
            state.this_pass.answers.put(Question.REFUSED, (entitlement, key))

    def _set_aside(self, entry: Entry) -> None:
        """Set room aside for the first waiting entry of its team and flavor, if it has waited too long (37)."""
        key = (entry.team, entry.demand.shape.flavor)
        if key not in self._set_aside_for:
            self._set_aside_for.add(key)
            if self._state.starves(entry):
                set_aside_for_starving(self._state, entry)


def _entitlement_for(state: AllocationState, entry: Entry, need: int) -> Entitlement:
    """The right by which the team could use `need` more GPUs, after the preemption of its other jobs for the entry."""
    if entry.account is None:
        return Entitlement.GUARANTEED
    right = entry.account.entitlement(need)
    if right is Entitlement.GUARANTEED:
        return right
    if state.starves(entry):  # GPUs of its team's jobs are held for it once they are free
        return entry.account.entitlement(need - (entry.account.used - entry.account.foreign))
    preemptible = preemptible_gpus_of_team(state, entry)
    return entry.account.entitlement(need - preemptible) if preemptible else right


def _waits(entry: Entry) -> bool:
    return bool(entry.sizes) and entry.demand.wants_pods and not entry.admitted


def _grow_all(state: AllocationState, entitlement: Entitlement) -> None:
    """One round of growth; each job grows for as long as it can.

    A step of growth that preempts pods may free more room than it needs. Then the jobs that found no room before are
    tried again in their order; otherwise jobs that rank after them would get that room.
    """
    while _leaves_room(state, entitlement):
        pass


def _leaves_room(state: AllocationState, entitlement: Entitlement) -> bool:
    """Grow jobs up to the first step that leaves room for a job that found none; returns whether there was one."""
    changed = state.this_pass.changed
    queues = state.queues.scale_up.by_account(changed)
    for entry in changed | individually_limited(state):
        queues.setdefault(entry.account, ScaleUpQueue({}, changed)).add(entry)
    is_left = False

    def grow_one(account: Account | None) -> bool:
        nonlocal is_left
        idle = state.board.idle_gpus
        if is_left or not _grow_one(state, entitlement, queues[account]):
            return False
        is_left = state.board.idle_gpus > idle and any(queue.has_given_up for queue in queues.values())
        return True

    lowest_first(queues, grow_one)
    return is_left


def _grow_one(state: AllocationState, entitlement: Entitlement, queue: ScaleUpQueue) -> bool:
    """Grow the first job that can grow by one step. Returns whether there was one."""
    while head := queue.first():
        group, entry = head
        if grow(state, entry, entitlement):
            queue.grew(group, entry)
            return True
        queue.give_up(group, entry)
    return False


def _take_turns(state: AllocationState, entries: Iterable[Entry], serve_one: Callable[[Entry], None]) -> None:
    """Serve the jobs of the team with the lowest share value, in their order, until a job changes the state. Then
    choose the team again.
    """
    queues: dict[Account | None, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: -entry.position):
        queues.setdefault(entry.account, []).append(entry)

    def serve_some(account: Account | None) -> bool:
        revision = state.journal.revision
        while queues[account] and state.journal.revision == revision:
            serve_one(queues[account].pop())
        return bool(queues[account])

    lowest_first(queues, serve_some)
