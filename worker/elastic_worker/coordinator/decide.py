"""Decides what to do now: `decide(state, now) -> Decision`, a pure function; each decision has a sentence for users.

    Waiting ──form──► Running ──align──► Aligning ──stop──► Stopping ──(all stopped)──► Waiting
                         └──────────── stop (a loss, a failure) ──────────►┘

A planned change waits for a checkpoint if the job writes any; a loss or a failure does not. `decide_in_place` decides
for groups whose processes need not be restarted.
"""

from __future__ import annotations

from elastic_worker.contract import RESTART
from elastic_worker.coordinator.choose import (
    choose_pods,
    expected_newcomers,
    first_failure,
    lost_pods,
    newcomer_deadline,
    reconnect_deadline,
    why_not_train,
)
from elastic_worker.coordinator.decision import LOOK_SECONDS, Decision, failed_for_good, next_generation
from elastic_worker.coordinator.describe import describe_change, names
from elastic_worker.coordinator.in_place import continue_to_checkpoint, decide_in_place, decide_on_stall
from elastic_worker.coordinator.member import Finished, Joined
from elastic_worker.coordinator.model import Failure, Generation, Pod
from elastic_worker.coordinator.state import CoordinatorState, Phase, RegroupAttempt

ADOPT_SECONDS = 3.0
"""How long a restarted coordinator waits for all members of a group that trains to reconnect."""
MAX_BACKOFF_SECONDS = 60.0
MOST_STOP_SECONDS = 90.0
"""Longer than a launcher takes to end its processes, or to find that they cannot be ended."""
LEAVE_MARGIN_SECONDS = 2.0
"""The part of a leaving pod's remaining time that is kept for stopping its processes."""
REQUESTED_CHECKPOINT_SECONDS = 10.0
"""How long a script may take to write the requested checkpoint before the sentence mentions the request."""
CAUSE_SECONDS = 1.0
"""How long the coordinator waits for the cause after a rank reports that it lost a peer, which often comes first."""


def decide(state: CoordinatorState, now: float) -> Decision:
    """Return the next thing to do."""
    if state.phase in (Phase.DONE, Phase.FAILED):
        return Decision("stay", "the job is over")
    if state.phase == Phase.STOPPING:
        return _stopping(state, now)
    if state.is_superseded:
        return _give_way(state)
    if state.phase == Phase.WAITING:
        return _waiting(state, now)
    assert state.group is not None
    if changes_in_place(state, state.group):
        return decide_in_place(state, state.group, now)
    if state.attempt is not None or can_save_together(state, state.group):
        return _checkpoint_and_restart(state, state.group, now)
    return _training(state, state.group, now)


def changes_in_place(state: CoordinatorState, group: Generation) -> bool:
    """Whether a connected pod's processes have the state and can switch to another group.

    Processes that have finished cannot switch: if the others lose a pod after that, all restart.
    """
    members, finished = state.members_of(group.pods), Finished(group.number)
    able = any(m.has_state and m.is_connected and m.change_mode != RESTART for m in members)
    return able and not any(m.processes == finished for m in members)


def can_save_together(state: CoordinatorState, group: Generation) -> bool:
    """Whether all processes of the group use the library, and restart from a checkpoint that they write together."""
    joined = Joined(group.number)
    members = state.members_of(group.pods)
    return all(m.is_connected and m.change_mode == RESTART and m.processes == joined for m in members)


def _checkpoint_and_restart(state: CoordinatorState, group: Generation, now: float) -> Decision:
    """Decide as for any script, except that a planned change has a checkpoint written instead of waiting for one."""
    decision = decide_on_stall(state, group) or _training(state, group, now)
    if decision.act not in ("stop", "align") or decision.reason not in ("Join", "Leave"):
        if state.attempt is not None and decision.act == "stay":
            return Decision("cancel", decision.sentence)
        return decision
    if state.attempt is None:
        attempt = RegroupAttempt(
            next_generation(state, (), decision.reason),
            state.attempts + 1,
            broken=False,
            since=now,
            sentence=decision.sentence,
            restarts=True,
            margin=1,
        )
        return Decision("prepare_wait", decision.sentence, reason=decision.reason, attempt=attempt)
    return continue_to_checkpoint(state, state.attempt, decision, now)


def _training(state: CoordinatorState, group: Generation, now: float) -> Decision:
    members = state.members_of(group.pods)
    finished = [m.pod for m in members if m.processes == Finished(group.number)]
    if len(finished) == len(group.pods):
        return Decision("done", "all processes ended well")
    broken = _decide_on_loss(state, group, now)
    if broken is not None:
        return broken
    if finished:
        sentence = f"{finished[0].name} has finished; the others are about to"
        return Decision("stay", sentence, until=reconnect_deadline(state, group) or now + LOOK_SECONDS)
    pods = choose_pods(state)
    absent = [m.pod.name for m in members if not m.is_connected]
    if absent:
        return Decision("stay", f"{absent[0]} may come back", until=reconnect_deadline(state, group))
    if {pod.uid for pod in pods} == group.uids:
        if state.phase == Phase.ALIGNING:
            return Decision("resume", "nobody leaves or comes any more")
        return Decision("stay", f"{len(group.pods)} pods train", until=now + LOOK_SECONDS)
    return _planned(state, group, pods, now)


def _decide_on_loss(state: CoordinatorState, group: Generation, now: float) -> Decision | None:
    """Stop a group that has lost a pod, in which a process has failed, or that hangs."""
    lost = lost_pods(state, group, now)
    if lost:
        master = any(pod.is_master for pod in lost)
        return Decision("stop", f"lost {names(lost)}", reason="MasterLost" if master else "Loss")
    if first := first_failure(state, group):
        if first.is_consequence and now < first.at + CAUSE_SECONDS:
            return Decision("stay", f"{first.pod} has lost a peer: which one?", until=first.at + CAUSE_SECONDS)
        return Decision("stop", f"{first.pod}: {first.message}", reason="Failure", failure=first)
    return _decide_on_idle(state, group)


def _decide_on_idle(state: CoordinatorState, group: Generation) -> Decision | None:
    """Stop a group if no unfinished pod of it has done anything for `stallSeconds`."""
    working = [m for m in state.members_of(group.pods) if m.processes != Finished(group.number)]
    if min((m.idle_seconds for m in working), default=0.0) < state.rules.stall_seconds:
        return None
    problem = f"no process has done a step, or anything else, for {state.rules.stall_seconds:.0f} s (stallSeconds)"
    if len(working) < len(group.pods):
        problem += f"; {working[0].pod.name} has not ended though others have finished"
    failure = Failure(group.number, 0, -1, problem, is_stall=True)
    return Decision("stop", problem, reason="Failure", failure=failure)


def _planned(state: CoordinatorState, group: Generation, pods: tuple[Pod, ...], now: float) -> Decision:
    """Decide on a change that can wait for a checkpoint."""
    staying = {pod.uid for pod in pods}
    going = [pod for pod in group.pods if pod.uid not in staying]
    coming = [pod for pod in pods if pod.uid not in group.uids]
    if not going:
        awaited = expected_newcomers(state)
        until = newcomer_deadline(state)
        if awaited and now < until and state.phase == Phase.RUNNING:
            waiting = f"{len(coming)} pods are ready to join; {len(awaited)} more are expected"
            return Decision("stay", waiting, until=until)
    reason = "Leave" if going else "Join"
    sentence = describe_change(state, going, coming)
    if state.rules.align_seconds is None or state.aligned:
        remark = _without_checkpoint(state) if state.no_checkpoint_came else ""
        return Decision("stop", f"{sentence}{remark}", reason=reason)
    if state.still_deadline is not None and now >= state.still_deadline:
        return Decision("stop", f"{sentence}; some did not say whether they write", reason=reason)
    limit, last_call = _checkpoint_deadlines(state, going, now)
    if last_call is not None and now >= last_call:
        return Decision("stop", f"{sentence}{_without_checkpoint(state)}", reason=reason)
    if state.phase == Phase.ALIGNING and state.change_reason == reason:
        return _wait_for_checkpoint(state, sentence, last_call, now)
    begins, ends = (None if time is None else time - now for time in (limit, last_call))
    return Decision("align", f"{sentence} after the next checkpoint", reason=reason, seconds=begins, last_call=ends)


def _wait_for_checkpoint(state: CoordinatorState, sentence: str, last_call: float | None, now: float) -> Decision:
    """Continue to wait; if the script was asked for a checkpoint and writes none, the sentence says so."""
    due = None if state.asked_at is None else state.asked_at + REQUESTED_CHECKPOINT_SECONDS
    is_late = due is not None and now >= due
    remark = f", for which the script was asked more than {REQUESTED_CHECKPOINT_SECONDS:.0f} s ago" if is_late else ""
    times = [time for time in (last_call, state.still_deadline, due) if time is not None and time > now]
    return Decision("stay", f"{sentence} after the next checkpoint{remark}", until=min(times, default=None))


def _without_checkpoint(state: CoordinatorState) -> str:
    """Return the end of a sentence."""
    asked = "" if state.asked_at is None else ", although the script was asked for one"
    return f"; no checkpoint came in time{asked}"


def _checkpoint_deadlines(state: CoordinatorState, going: list[Pod], now: float) -> tuple[float | None, float | None]:
    """Return until when a checkpoint may begin, and until when it has to be complete; growth has no limit.

    A leaving pod waits for the start of a checkpoint as long as the job allows (`align_seconds`). If a checkpoint is
    being written by then, the pod waits for its completion until the pod's own deadline (108).
    """
    if not going:
        return None, None
    rules = state.rules
    assert rules.align_seconds is not None
    began = state.planned_at if state.phase == Phase.ALIGNING and state.change_reason == "Leave" else now
    ends = [m.presence.leaving_until for m in state.members_of(going)]
    leave = [end - LEAVE_MARGIN_SECONDS for end in ends if end is not None]
    last_call = min([began + max(rules.align_seconds, rules.grace_seconds), *leave])
    return min(began + rules.align_seconds, last_call), last_call


def _stopping(state: CoordinatorState, now: float) -> Decision:
    """Wait until all processes are stopped.

    A launcher reports processes that it cannot end. A launcher that does not report anything is given up (105).
    """
    running = [m.pod for m in state.members.values() if m.still_runs]
    if not running:
        return Decision("stopped", "all processes are stopped")
    until = state.phase_since + MOST_STOP_SECONDS
    named = ", ".join(sorted(pod.name for pod in running)[:3])
    if now >= until:
        sentence = f"{named} have not ended their processes for {MOST_STOP_SECONDS:.0f} s: they are given up"
        return Decision("give_up", sentence, pods=tuple(running))
    return Decision("stay", f"{named} still stop their processes", until=until)


def _give_way(state: CoordinatorState) -> Decision:
    """Stop training for good, since a later master trains elsewhere."""
    sentence = f"a later master, of epoch {state.newest_epoch}, has taken over"
    if state.phase == Phase.WAITING:
        return Decision("stay", sentence)
    return Decision("stop", sentence, reason="MasterLost")


def _waiting(state: CoordinatorState, now: float) -> Decision:
    adopted = _adopt(state, now)
    if adopted is not None:
        return adopted
    failed = failed_for_good(state)
    if failed is not None:
        return failed
    if now < state.gives_way_until:
        sentence = "an earlier master, if it is cut off, gives way first"
        return Decision("stay", sentence, until=state.gives_way_until)
    if now < state.restart_at:
        return Decision("stay", f"tried again in {state.restart_at - now:.0f} s", until=state.restart_at)
    pods = choose_pods(state)
    problem = why_not_train(state, pods)
    if problem:
        return Decision("stay", problem)
    if not state.members[pods[0].uid].store_port:
        return Decision("stay", "the master's store is about to start")
    awaited = expected_newcomers(state)
    until = newcomer_deadline(state)
    if awaited and now < until and not _survivors_suffice(state, pods):
        return Decision("stay", f"{len(pods)} pods are ready; {len(awaited)} more are expected", until=until)
    return Decision("form", f"{len(pods)} pods", group=next_generation(state, pods, state.change_reason))


def _survivors_suffice(state: CoordinatorState, pods: tuple[Pod, ...]) -> bool:
    """Whether the remaining pods continue at once after a loss; a new master first waits for the last group's pods."""
    if state.group is None or state.own_uid not in state.group.uids or state.membership is None:
        return False
    return state.membership.largest(sum(pod.uid in state.group.uids for pod in pods)) > 0


def _adopt(state: CoordinatorState, now: float) -> Decision | None:
    """Adopt a group that the previous coordinator formed, which continues training; None if there is no such group."""
    group = state.group
    if group is None or state.phase_since > state.started:
        return None
    running = {m.pod.uid for m in state.members.values() if m.is_connected and m.processes.number == group.number}
    if not running:
        return None
    is_complete = running == group.uids
    lost_master = group.epoch < state.epoch and not group.is_without_master
    if is_complete or lost_master or now >= state.started + ADOPT_SECONDS:
        return Decision("adopt", f"generation {group.number} trains already", group=group)
    return Decision(
        "stay", f"generation {group.number} trains; not all of it is here", until=state.started + ADOPT_SECONDS
    )


def backoff(failures: int) -> float:
    """Return the seconds before the processes restart, by the number of failures in a row; 0 after the first one."""
    return 0.0 if failures <= 1 else min(2.0 ** (failures - 2), MAX_BACKOFF_SECONDS)
