"""What to do now: `decide(state, now) -> Decision`, pure, with a sentence that says why.

    Waiting ──form──► Running ──align──► Aligning ──stop──► Stopping ──(all stopped)──► Waiting
                         └──────────── stop (a loss, a failure) ──────────►┘

A planned change waits for a checkpoint where there is one to wait for; a loss or a failure does not. Groups whose
processes need not be started again are `decide_in_place`'s.
"""

from __future__ import annotations

from dataclasses import replace

from elastic_worker.contract import RESTART
from elastic_worker.coordinator.choose import chosen, expected_newcomers, lost, patient_until, reconnects, why_not
from elastic_worker.coordinator.decision import LOOK_SECONDS, Decision, next_generation, over_for_good
from elastic_worker.coordinator.in_place import (
    decide_in_place,
    follow_to_checkpoint,
    why_stalled,
)
from elastic_worker.coordinator.member import Finished, Joined
from elastic_worker.coordinator.model import Failure, Generation, Pod
from elastic_worker.coordinator.state import CoordinatorState, Phase, Regroup
from elastic_worker.coordinator.words import names, what_changes

ADOPT_SECONDS = 3.0
"""After a start among members that train: until when all of their group may come back."""
MAX_BACKOFF_SECONDS = 60.0
MOST_STOP_SECONDS = 90.0
"""More than a launcher takes to end its processes, or to see that they cannot be ended."""
LEAVE_MARGIN_SECONDS = 2.0
"""Of the time that a leaving pod has left; what stopping its processes takes."""
HEED_SECONDS = 10.0
"""What a script that is asked for a checkpoint gets to write one before it is said that it was asked."""
CAUSE_SECONDS = 1.0
"""A rank that lost its peer is often heard first. So long the coordinator waits to hear what became of the peer."""


def decide(state: CoordinatorState, now: float) -> Decision:
    """The next thing to do."""
    if state.phase in (Phase.DONE, Phase.FAILED):
        return Decision("stay", "the job is over")
    if state.phase == Phase.STOPPING:
        return _stopping(state, now)
    if state.is_past:
        return _gives_way(state)
    if state.phase == Phase.WAITING:
        return _waiting(state, now)
    assert state.group is not None
    if changes_in_place(state, state.group):
        return decide_in_place(state, state.group, now)
    if state.attempt is not None or can_save_together(state, state.group):
        return _with_a_checkpoint(state, state.group, now)
    return _training(state, state.group, now)


def changes_in_place(state: CoordinatorState, group: Generation) -> bool:
    """Whether somebody is here whose processes have the state, and can go over to another group.

    Those that have finished cannot: if the others lose a pod then, all start again.
    """
    members, ended_well = state.members_of(group.pods), Finished(group.number)
    able = any(m.has_state and m.where.connected and m.kind != RESTART for m in members)
    return able and not any(m.processes == ended_well for m in members)


def can_save_together(state: CoordinatorState, group: Generation) -> bool:
    """Whether all of its processes use the library, and start again after a checkpoint that they write together."""
    joined = Joined(group.number)
    members = state.members_of(group.pods)
    return all(m.where.connected and m.kind == RESTART and m.processes == joined for m in members)


def _with_a_checkpoint(state: CoordinatorState, group: Generation, now: float) -> Decision:
    """As for any script, but that a planned change need not wait for a checkpoint: one is written for it."""
    decision = why_stalled(state, group) or _training(state, group, now)
    if decision.act not in ("stop", "align") or decision.reason not in ("Join", "Leave"):
        if state.attempt is not None and decision.act == "stay":
            return Decision("cancel", decision.sentence)
        return decision
    if state.attempt is None:
        attempt = Regroup(next_generation(state, (), decision.reason), state.attempts + 1, broken=False, since=now)
        attempt = replace(attempt, sentence=decision.sentence, starts_again=True, margin=1)
        return Decision("park", decision.sentence, reason=decision.reason, attempt=attempt)
    return follow_to_checkpoint(state, state.attempt, decision, now)


def _training(state: CoordinatorState, group: Generation, now: float) -> Decision:
    members, ended_well = state.members_of(group.pods), Finished(group.number)
    finished = [m.pod for m in members if m.processes == ended_well]
    if len(finished) == len(group.pods):
        return Decision("done", "all processes ended well")
    broken = _broken(state, group, now)
    if broken is not None:
        return broken
    if finished:
        told = f"{finished[0].name} has finished; the others are about to"
        return Decision("stay", told, until=reconnects(state, group) or now + LOOK_SECONDS)
    pods = chosen(state)
    absent = [m.pod.name for m in members if not m.where.connected]
    if absent:
        return Decision("stay", f"{absent[0]} may come back", until=reconnects(state, group))
    if {pod.uid for pod in pods} == group.uids:
        if state.phase == Phase.ALIGNING:
            return Decision("resume", "nobody leaves or comes any more")
        return Decision("stay", f"{len(group.pods)} pods train", until=now + LOOK_SECONDS)
    return _planned(state, group, pods, now)


def _broken(state: CoordinatorState, group: Generation, now: float) -> Decision | None:
    """The group cannot go on."""
    gone = lost(state, group, now)
    failures = [m.failure for m in state.members.values() if m.failure and m.failure.generation == group.number]
    if gone:
        master = any(pod.is_master for pod in gone)
        return Decision("stop", f"lost {names(gone)}", reason="MasterLost" if master else "Loss")
    if failures:
        first = min(failures, key=lambda f: (f.is_consequence, f.at, f.rank))
        if first.is_consequence and now < first.at + CAUSE_SECONDS:
            return Decision("stay", f"{first.pod} has lost a peer: which one?", until=first.at + CAUSE_SECONDS)
        return Decision("stop", f"{first.pod}: {first.message}", reason="Failure", failure=first)
    return _why_idle(state, group)


def _why_idle(state: CoordinatorState, group: Generation) -> Decision | None:
    """No unfinished pod has done anything for far too long: the job hangs, at its end if others have finished."""
    ended_well = Finished(group.number)
    working = [m for m in state.members_of(group.pods) if m.processes != ended_well]
    if min((m.idle_seconds for m in working), default=0.0) < state.rules.stall_seconds:
        return None
    told = f"no process has done a step, or anything else, for {state.rules.stall_seconds:.0f} s (stallSeconds)"
    if len(working) < len(group.pods):
        told += f"; {working[0].pod.name} has not ended though others have finished"
    return Decision("stop", told, reason="Failure", failure=Failure(group.number, 0, -1, told, is_stall=True))


def _planned(state: CoordinatorState, group: Generation, pods: tuple[Pod, ...], now: float) -> Decision:
    """A change that nothing forces at this moment."""
    staying = {pod.uid for pod in pods}
    going = [pod for pod in group.pods if pod.uid not in staying]
    coming = [pod for pod in pods if pod.uid not in group.uids]
    if not going:
        awaited = expected_newcomers(state)
        patience = patient_until(state)
        if awaited and now < patience and state.phase == Phase.RUNNING:
            told = f"{len(coming)} pods are ready to join; {len(awaited)} more are expected"
            return Decision("stay", told, until=patience)
    reason = "Leave" if going else "Join"
    sentence = what_changes(state, going, coming)
    if state.rules.align_seconds is None or state.aligned:
        told = _in_vain(state) if state.in_vain else ""
        return Decision("stop", f"{sentence}{told}", reason=reason)
    if state.still_until is not None and now >= state.still_until:
        return Decision("stop", f"{sentence}; some did not say whether they write", reason=reason)
    limit, last_call = _align_until(state, going, now)
    if last_call is not None and now >= last_call:
        return Decision("stop", f"{sentence}{_in_vain(state)}", reason=reason)
    if state.phase == Phase.ALIGNING and state.why == reason:
        return _awaits_checkpoint(state, sentence, last_call, now)
    begins, ends = (None if time is None else time - now for time in (limit, last_call))
    return Decision("align", f"{sentence} after the next checkpoint", reason=reason, seconds=begins, last_call=ends)


def _awaits_checkpoint(state: CoordinatorState, sentence: str, last_call: float | None, now: float) -> Decision:
    """Whether or not the script heeds that it was asked for one."""
    heeds_until = None if state.asked_at is None else state.asked_at + HEED_SECONDS
    is_late = heeds_until is not None and now >= heeds_until
    told = f", for which the script was asked more than {HEED_SECONDS:.0f} s ago" if is_late else ""
    times = [time for time in (last_call, state.still_until, heeds_until) if time is not None and time > now]
    return Decision("stay", f"{sentence} after the next checkpoint{told}", until=min(times, default=None))


def _in_vain(state: CoordinatorState) -> str:
    """The end of a sentence."""
    asked = "" if state.asked_at is None else ", although the script was asked for one"
    return f"; no checkpoint came in time{asked}"


def _align_until(state: CoordinatorState, going: list[Pod], now: float) -> tuple[float | None, float | None]:
    """Until when a checkpoint may begin, and end. Growth has all the time.

    A leaving pod waits as long as the job's limit allows. For a checkpoint that is being written then, it waits until
    its own end (108).
    """
    if not going:
        return None, None
    rules = state.rules
    assert rules.align_seconds is not None
    began = state.planned_at if state.phase == Phase.ALIGNING and state.why == "Leave" else now
    ends = [m.where.leaving_until for m in state.members_of(going)]
    leave = [end - LEAVE_MARGIN_SECONDS for end in ends if end is not None]
    last_call = min([began + max(rules.align_seconds, rules.grace_seconds), *leave])
    return min(began + rules.align_seconds, last_call), last_call


def _stopping(state: CoordinatorState, now: float) -> Decision:
    """A launcher gives up what it cannot end, and says so; one that does not even say that is given up itself (105)."""
    running = [m.pod for m in state.members.values() if m.still_runs]
    if not running:
        return Decision("stopped", "all processes are stopped")
    until = state.phase_since + MOST_STOP_SECONDS
    named = ", ".join(sorted(pod.name for pod in running)[:3])
    if now >= until:
        told = f"{named} have not ended their processes for {MOST_STOP_SECONDS:.0f} s: they are given up"
        return Decision("give_up", told, pods=tuple(running))
    return Decision("stay", f"{named} still stop their processes", until=until)


def _gives_way(state: CoordinatorState) -> Decision:
    """To a later master, which trains elsewhere."""
    told = f"a later master, of epoch {state.newest_epoch}, has taken over"
    if state.phase == Phase.WAITING:
        return Decision("stay", told)
    return Decision("stop", told, reason="MasterLost")


def _waiting(state: CoordinatorState, now: float) -> Decision:
    adopted = _adopt(state, now)
    if adopted is not None:
        return adopted
    over = over_for_good(state)
    if over is not None:
        return over
    if now < state.gives_way_until:
        told = "an earlier master, if it is cut off, gives way first"
        return Decision("stay", told, until=state.gives_way_until)
    if now < state.restart_at:
        return Decision("stay", f"tried again in {state.restart_at - now:.0f} s", until=state.restart_at)
    pods = chosen(state)
    problem = why_not(state, pods)
    if problem:
        return Decision("stay", problem)
    if not state.members[pods[0].uid].store_port:
        return Decision("stay", "the master's store is about to start")
    awaited = expected_newcomers(state)
    patience = patient_until(state)
    if awaited and now < patience and not _survivors_suffice(state, pods):
        return Decision("stay", f"{len(pods)} pods are ready; {len(awaited)} more are expected", until=patience)
    return Decision("form", f"{len(pods)} pods", group=next_generation(state, pods, state.why))


def _survivors_suffice(state: CoordinatorState, pods: tuple[Pod, ...]) -> bool:
    """After a loss the remaining pods go on at once; a new master first waits for those of before."""
    if state.group is None or state.me not in state.group.uids or state.wish is None:
        return False
    return state.wish.largest(sum(pod.uid in state.group.uids for pod in pods)) > 0


def _adopt(state: CoordinatorState, now: float) -> Decision | None:
    """A group that trains already, under a coordinator that is no more, goes on."""
    group = state.group
    if group is None or state.phase_since > state.started:
        return None
    running = {m.pod.uid for m in state.members.values() if m.where.connected and m.processes.number == group.number}
    if not running:
        return None
    all_here = running == group.uids
    lost_master = group.epoch < state.epoch and not group.is_without_master
    if all_here or lost_master or now >= state.started + ADOPT_SECONDS:
        return Decision("adopt", f"generation {group.number} trains already", group=group)
    return Decision(
        "stay", f"generation {group.number} trains; not all of it is here", until=state.started + ADOPT_SECONDS
    )


def backoff(failures: int) -> float:
    """Seconds before the processes start again, by the number of failures in a row; after the first one none."""
    return 0.0 if failures <= 1 else min(2.0 ** (failures - 2), MAX_BACKOFF_SECONDS)
