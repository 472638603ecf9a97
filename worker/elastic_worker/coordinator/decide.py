"""What to do now: `decide(board, now) -> Decision`, pure, with a sentence that says why.

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
    wait_for_others,
    why_idle,
    why_stalled,
)
from elastic_worker.coordinator.model import Board, Generation, Phase, Pod, Regroup
from elastic_worker.coordinator.words import member, names, what_changes

ADOPT_SECONDS = 3.0
"""After a start among members that train: until when all of their group may come back."""
MAX_BACKOFF_SECONDS = 60.0
MOST_STOP_SECONDS = 90.0
"""More than a launcher takes to end its processes, or to see that they cannot be ended."""
LEAVE_MARGIN_SECONDS = 2.0
"""Of the time that a leaving pod has left; what stopping its processes takes."""
CAUSE_SECONDS = 1.0
"""A rank that lost its peer is often heard first. So long the coordinator waits to hear what became of the peer."""


def decide(board: Board, now: float) -> Decision:
    """The next thing to do."""
    if board.phase in (Phase.DONE, Phase.FAILED):
        return Decision("stay", "the job is over")
    if board.phase == Phase.STOPPING:
        return _stopping(board, now)
    if board.is_past:
        return _gives_way(board)
    if board.phase == Phase.WAITING:
        return _waiting(board, now)
    assert board.group is not None
    if changes_in_place(board, board.group):
        return decide_in_place(board, board.group, now)
    if board.attempt is not None or can_save_together(board, board.group):
        return _with_a_checkpoint(board, board.group, now)
    return _training(board, board.group, now)


def changes_in_place(board: Board, group: Generation) -> bool:
    """Whether somebody is here whose processes are in the group, or on their way, and can go over to another one."""
    members = [m for m in board.members.values() if m.connected and m.pod.uid in group.uids and m.kind != RESTART]
    if board.in_place == group.number:
        return any(m.joined_generation or m.has_state for m in members)
    return any(
        m.joined_generation == group.number or (m.lost_generation == group.number and m.has_state) for m in members
    )


def can_save_together(board: Board, group: Generation) -> bool:
    """Whether all of its processes use the library, and start again after a checkpoint that they write together."""
    members = [member(board, pod) for pod in group.pods]
    return all(m.connected and m.kind == RESTART and m.joined_generation == group.number for m in members)


def _with_a_checkpoint(board: Board, group: Generation, now: float) -> Decision:
    """As for any script, but that a planned change need not wait for a checkpoint: one is written for it."""
    decision = why_stalled(board, group) or _training(board, group, now)
    if decision.act not in ("stop", "align") or decision.reason not in ("Join", "Leave"):
        if board.attempt is not None and decision.act == "stay":
            return Decision("cancel", decision.sentence)
        return decision
    if board.attempt is None:
        attempt = Regroup(next_generation(board, (), decision.reason), board.attempts + 1, broken=False, since=now)
        attempt = replace(attempt, sentence=decision.sentence, starts_again=True, margin=1)
        return Decision("park", decision.sentence, reason=decision.reason, attempt=attempt)
    return follow_to_checkpoint(board, board.attempt, decision, now)


def _training(board: Board, group: Generation, now: float) -> Decision:
    finished = [pod for pod in group.pods if member(board, pod).finished == group.number]
    if len(finished) == len(group.pods):
        return Decision("done", "all processes ended well")
    broken = _broken(board, group, now)
    if broken is not None:
        return broken
    if finished:
        return wait_for_others(board, finished[0], now)
    pods = chosen(board)
    absent = [pod.name for pod in group.pods if not member(board, pod).connected]
    if absent:
        return Decision("stay", f"{absent[0]} may come back", until=reconnects(board))
    if {pod.uid for pod in pods} == group.uids:
        if board.phase == Phase.ALIGNING:
            return Decision("resume", "nobody leaves or comes any more")
        return Decision("stay", f"{len(group.pods)} pods train", until=now + LOOK_SECONDS)
    return _planned(board, group, pods, now)


def _broken(board: Board, group: Generation, now: float) -> Decision | None:
    """The group cannot go on."""
    gone = lost(board, group, now)
    failures = [m.failure for m in board.members.values() if m.failure and m.failure.generation == group.number]
    if gone:
        master = any(pod.is_master for pod in gone)
        return Decision("stop", f"lost {names(gone)}", reason="MasterLost" if master else "Loss")
    if failures:
        first = min(failures, key=lambda f: (f.is_consequence, f.at, f.rank))
        if first.is_consequence and now < first.at + CAUSE_SECONDS:
            return Decision("stay", f"{first.pod} has lost a peer: which one?", until=first.at + CAUSE_SECONDS)
        return Decision("stop", f"{first.pod}: {first.message}", reason="Failure", failure=first)
    return why_idle(board, group)


def _planned(board: Board, group: Generation, pods: tuple[Pod, ...], now: float) -> Decision:
    """A change that nothing forces at this moment."""
    staying = {pod.uid for pod in pods}
    going = [pod for pod in group.pods if pod.uid not in staying]
    coming = [pod for pod in pods if pod.uid not in group.uids]
    if not going:
        awaited = expected_newcomers(board)
        patience = patient_until(board)
        if awaited and now < patience and board.phase == Phase.RUNNING:
            told = f"{len(coming)} pods are ready to join; {len(awaited)} more are expected"
            return Decision("stay", told, until=patience)
    reason = "Leave" if going else "Join"
    sentence = what_changes(board, going, coming)
    if board.rules.align_seconds is None or board.aligned:
        told = "; no checkpoint came in time" if board.in_vain else ""
        return Decision("stop", f"{sentence}{told}", reason=reason)
    if board.still_until is not None and now >= board.still_until:
        return Decision("stop", f"{sentence}; some did not say whether they write", reason=reason)
    limit, last_call = _align_until(board, going, now)
    if last_call is not None and now >= last_call:
        return Decision("stop", f"{sentence}; no checkpoint came in time", reason=reason)
    if board.phase == Phase.ALIGNING and board.why == reason:
        until = min((time for time in (last_call, board.still_until) if time is not None), default=None)
        return Decision("stay", f"{sentence} after the next checkpoint", until=until)
    begins, ends = (None if time is None else time - now for time in (limit, last_call))
    return Decision("align", f"{sentence} after the next checkpoint", reason=reason, seconds=begins, last_call=ends)


def _align_until(board: Board, going: list[Pod], now: float) -> tuple[float | None, float | None]:
    """Until when a checkpoint may begin, and end. Growth has all the time.

    A leaving pod waits as long as the job's limit allows. For a checkpoint that is being written then, it waits until
    its own end (108).
    """
    if not going:
        return None, None
    rules = board.rules
    assert rules.align_seconds is not None
    began = board.planned_at if board.phase == Phase.ALIGNING and board.why == "Leave" else now
    ends = [member(board, pod).leaving_until for pod in going]
    leave = [end - LEAVE_MARGIN_SECONDS for end in ends if end is not None]
    last_call = min([began + max(rules.align_seconds, rules.grace_seconds), *leave])
    return min(began + rules.align_seconds, last_call), last_call


def _stopping(board: Board, now: float) -> Decision:
    """A launcher gives up what it cannot end, and says so; one that does not even say that is given up itself (105)."""
    running = [m.pod for m in board.members.values() if m.still_runs]
    if not running:
        return Decision("stopped", "all processes are stopped")
    until = board.phase_since + MOST_STOP_SECONDS
    named = ", ".join(sorted(pod.name for pod in running)[:3])
    if now >= until:
        told = f"{named} have not ended their processes for {MOST_STOP_SECONDS:.0f} s: they are given up"
        return Decision("give_up", told, pods=tuple(running))
    return Decision("stay", f"{named} still stop their processes", until=until)


def _gives_way(board: Board) -> Decision:
    """To a later master, which trains elsewhere."""
    told = f"a later master, of epoch {board.newest_epoch}, has taken over"
    if board.phase == Phase.WAITING:
        return Decision("stay", told)
    return Decision("stop", told, reason="MasterLost")


def _waiting(board: Board, now: float) -> Decision:
    adopted = _adopt(board, now)
    if adopted is not None:
        return adopted
    over = over_for_good(board)
    if over is not None:
        return over
    if now < board.gives_way_until:
        told = "an earlier master, if it is cut off, gives way first"
        return Decision("stay", told, until=board.gives_way_until)
    if now < board.restart_at:
        return Decision("stay", f"tried again in {board.restart_at - now:.0f} s", until=board.restart_at)
    pods = chosen(board)
    problem = why_not(board, pods)
    if problem:
        return Decision("stay", problem)
    if not member(board, pods[0]).store_port:
        return Decision("stay", "the master's store is about to start")
    awaited = expected_newcomers(board)
    patience = patient_until(board)
    if awaited and now < patience and not _survivors_suffice(board, pods):
        return Decision("stay", f"{len(pods)} pods are ready; {len(awaited)} more are expected", until=patience)
    return Decision("form", f"{len(pods)} pods", group=next_generation(board, pods, board.why))


def _survivors_suffice(board: Board, pods: tuple[Pod, ...]) -> bool:
    """After a loss the remaining pods go on at once; a new master first waits for those of before."""
    if board.group is None or board.me not in board.group.uids or board.wish is None:
        return False
    return board.wish.largest(sum(pod.uid in board.group.uids for pod in pods)) > 0


def _adopt(board: Board, now: float) -> Decision | None:
    """A group that trains already, under a coordinator that is no more, goes on."""
    group = board.group
    if group is None or board.phase_since > board.started:
        return None
    running = {m.pod.uid for m in board.members.values() if m.connected and m.process_generation == group.number}
    if not running:
        return None
    all_here = running == group.uids
    lost_master = group.epoch < board.epoch and not group.is_without_master
    if all_here or lost_master or now >= board.started + ADOPT_SECONDS:
        return Decision("adopt", f"generation {group.number} trains already", group=group)
    return Decision(
        "stay", f"generation {group.number} trains; not all of it is here", until=board.started + ADOPT_SECONDS
    )


def backoff(failures: int) -> float:
    """Seconds before the processes start again, by the number of failures in a row; after the first one none."""
    return 0.0 if failures <= 1 else min(2.0 ** (failures - 2), MAX_BACKOFF_SECONDS)
