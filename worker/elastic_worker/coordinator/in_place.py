"""What to do with a group whose processes change it without being started again: `decide_in_place(board, group, now)`.

    (training) ──prepare──► forming ──ask──► asking ──propose──► proposed ──bind──► (training, as the next group)

The next group is formed beside the one that trains. All who train agree on its moment: the step after the
latest that any of them has begun, and a bit. A rank that has agreed waits there. All go over together, or none does. A
group that is broken, since one of its pods is gone, does no step any more: nothing is agreed then, its processes wait.

Pure, as `decide` is.
"""

from __future__ import annotations

from dataclasses import replace

from elastic_worker.coordinator import words
from elastic_worker.coordinator.choose import in_order, is_wanted, leaving, lost, reconnects, why_not
from elastic_worker.coordinator.decision import LOOK_SECONDS, Decision, next_generation, over_for_good
from elastic_worker.coordinator.model import Board, Failure, Generation, Member, Pod, Regroup, Stage, Wish

FORM_SECONDS = 6.0
"""What a group gets to form: longer than its processes wait for each other."""
AGREE_SECONDS = 5.0
NEWCOMER_SECONDS = 10.0
"""Further newcomers are waited for at most so long after the first one is ready."""
SAVE_SECONDS = 1800.0
SAVE_MARGIN_SECONDS = 2.0
"""Of what a leaving pod has left: for the end of its processes."""
MOST_ATTEMPTS = 3
"""Then newcomers are left out until they connect anew; without newcomers the processes start again."""


def decide_in_place(board: Board, group: Generation, now: float) -> Decision:
    """The next thing to do, for a group all of whose processes are in it."""
    finished = [pod for pod in group.pods if words.member(board, pod).finished == group.number]
    if len(finished) == len(group.pods):
        return Decision("done", "all processes ended well")
    failed = _failed(board, group)
    if failed is not None:
        return failed
    if finished:
        return why_idle(board, group) or wait_for_others(board, finished[0], now)
    stalled = why_stalled(board, group)
    if stalled is not None:
        return stalled
    broken = _why_broken(board, group, now)
    if not broken and (absent := _absent(board, group)):
        return Decision("stay", f"{absent} may come back", until=reconnects(board))
    newcomers = _newcomers_to_tell(board)
    if newcomers:
        names = ", ".join(pod.name for pod in newcomers[:3])
        return Decision("candidates", f"{names} get ready to join", pods=newcomers)
    pods = _pods(board)
    if board.attempt is not None:
        return _follow(board, board.attempt, pods, broken, now)
    if broken:
        return _mend(board, group, pods, broken)
    behind = [pod.name for pod in group.pods if words.member(board, pod).joined_generation != group.number]
    if behind:
        # Of the boundaries that it passes until then, the next change knows nothing.
        return Decision("stay", f"{behind[0]} goes over to generation {group.number}", until=now + LOOK_SECONDS)
    if not any(m.here for m in board.members.values() if m.pod.uid in group.uids):
        return _wait_together(board, f"all {len(group.pods)} pods leave", now)
    return _planned(board, group, pods, now)


def is_ready(member: Member | None) -> bool:
    """Whether all of the pod's processes can be brought into a group."""
    return member is not None and member.here and member.ready_at is not None


# -- what is wrong -----------------------------------------------------------------------------------------------------


def _failed(board: Board, group: Generation) -> Decision | None:
    """A process that failed is counted; too many, and it is over for this group."""
    failures = [m.failure for m in board.members.values() if m.failure and m.failure.generation == group.number]
    if failures:
        first = min(failures, key=lambda f: (f.is_consequence, f.at, f.rank))
        return Decision("count", f"{first.pod}: {first.message}", failure=first)
    return over_for_good(board)


def why_stalled(board: Board, group: Generation) -> Decision | None:
    """Every rank's step takes far too long: name the rank that is least far, and start again from the checkpoint."""
    stuck = [
        m.stuck for pod in group.pods if (m := words.member(board, pod)).stuck and m.process_generation == group.number
    ]
    same = [each for each in stuck if each is not None and each.get("generation") == group.number]
    if len(same) < len(group.pods):
        return None
    first = min(same, key=lambda each: (each["tick"], each["rank"]))
    told = f"no step for {first['seconds']:.0f} s; rank {first['rank']} is least far, at boundary {first['tick']}"
    failure = Failure(group.number, first["rank"], -1, told, is_stall=True)
    return Decision("stop", told, reason="Failure", failure=failure)


def why_idle(board: Board, group: Generation) -> Decision | None:
    """No unfinished pod has done anything for far too long: the job hangs, at its end if others have finished."""
    working = [m for pod in group.pods if (m := words.member(board, pod)).finished != group.number]
    if min((m.idle_seconds for m in working), default=0.0) < board.rules.stall_seconds:
        return None
    told = f"no process has done a step, or anything else, for {board.rules.stall_seconds:.0f} s (stallSeconds)"
    if len(working) < len(group.pods):
        told += f"; {working[0].pod.name} has not ended though others have finished"
    return Decision("stop", told, reason="Failure", failure=Failure(group.number, 0, -1, told, is_stall=True))


def wait_for_others(board: Board, finished: Pod, now: float) -> Decision:
    """Of a group one of whose pods has finished well."""
    told = f"{finished.name} has finished; the others are about to"
    return Decision("stay", told, until=reconnects(board) or now + LOOK_SECONDS)


def _why_broken(board: Board, group: Generation, now: float) -> str:
    """Why the group that trains can do no further step; "" if it can."""
    gone = lost(board, group, now)
    if gone:
        return f"lost {words.names(gone)}"
    for pod in group.pods:
        member = words.member(board, pod)
        if member.connected and (member.process_generation != group.number or member.lost_generation == group.number):
            return f"{pod.name} has lost a process, or its peers"
    return board.parked


def _absent(board: Board, group: Generation) -> str:
    return next((pod.name for pod in group.pods if not words.member(board, pod).connected), "")


# -- the pods of the next group ----------------------------------------------------------------------------------------


def _newcomers_to_tell(board: Board) -> tuple[Pod, ...]:
    """Pods that are to start their processes, or those that they have lost."""
    able = [m for m in board.members.values() if m.here and is_wanted(board, m.pod.uid) and not m.refused]
    late = [m for m in able if m.ready_at is None and not m.starting and not _is_on_its_way(board, m)]
    late = [m for m in late if m.warm_at is not None or m.process_generation]
    return tuple(m.pod for m in sorted(late, key=lambda m: (m.pod.index, m.pod.uid)))


def _is_on_its_way(board: Board, member: Member) -> bool:
    """Whether its processes were started for the group that trains, and are about to be in it."""
    assert board.group is not None
    number = board.group.number
    return member.process_generation == number and member.lost_generation != number


def _pods(board: Board) -> tuple[Pod, ...]:
    """The best group of pods that are ready; none if they are too few, or wait for the master's."""
    if board.wish is None:
        return ()
    able = [m for m in board.members.values() if is_ready(m) and is_wanted(board, m.pod.uid)]
    able = [m for m in able if not m.refused]
    return in_order(board, able) or _without_master(board, board.wish)


def _without_master(board: Board, wish: Wish) -> tuple[Pod, ...]:
    """The others of the group, while the master's pod leaves or its successor is not warm yet (125).

    All of them, or none: a pod that is not ready yet may be ready before the master's processes.
    """
    assert board.group is not None
    if _is_master_near(board):
        return ()
    rest = [words.member(board, pod) for pod in board.group.pods if not pod.is_master]
    rest = [m for m in rest if not (m.goodbye or m.leaving_until is not None)]
    if not all(is_ready(m) and m.takes_parts and is_wanted(board, m.pod.uid) for m in rest):
        return ()
    pods = tuple(m.pod for m in rest[: wish.largest(len(rest))])
    return pods if failed_attempts(board, pods) < MOST_ATTEMPTS - 1 else ()


def failed_attempts(board: Board, pods: tuple[Pod, ...]) -> int:
    """How often in a row a group of just these pods did not come about."""
    return board.failed_attempts if board.tried == pods else 0


def _is_master_near(board: Board) -> bool:
    """Whether its processes are ready in a moment. A group that forms without them is not given up for that."""
    if board.attempt is not None and board.attempt.group.is_without_master:
        return False
    master = board.member(board.me)
    return master is not None and master.here and master.warm_at is not None


def _late(board: Board) -> list[Member]:
    """Newcomers that have been told to get ready and are not yet."""
    members = [m for m in board.members.values() if m.here and m.starting and m.ready_at is None]
    return [m for m in members if is_wanted(board, m.pod.uid)]


# -- changes -----------------------------------------------------------------------------------------------------------


def _planned(board: Board, group: Generation, pods: tuple[Pod, ...], now: float) -> Decision:
    """Nothing is broken: grow, or let leaving pods go."""
    if not pods:
        going = [pod for pod in group.pods if not words.member(board, pod).here]
        if not going:
            told = "the master's processes get ready to join" if group.is_without_master else why_not(board, pods)
            return Decision("stay", told, until=now + LOOK_SECONDS)
        return _wait_together(board, f"{words.what_changes(board, going, [])}; {_too_few(board)}", now)
    late = _late(board)
    staying = {pod.uid for pod in pods}
    if staying == group.uids:
        told = f"{late[0].pod.name} gets ready to join" if late else f"{len(group.pods)} pods train"
        return Decision("stay", told, until=now + LOOK_SECONDS)
    going = [pod for pod in group.pods if pod.uid not in staying]
    coming = [pod for pod in pods if pod.uid not in group.uids]
    if not going and late:
        first = min(words.member(board, pod).ready_at or now for pod in coming)
        if now < first + NEWCOMER_SECONDS:
            told = f"{len(coming)} pods are ready to join; {len(late)} more get ready"
            return Decision("stay", told, until=first + NEWCOMER_SECONDS)
    if (awaited := _awaits_store(board, pods[0])) is not None:
        return awaited
    reason = "Leave" if going else "Join"
    sentence = words.what_changes(board, going, coming)
    return Decision("prepare", sentence, reason=reason, attempt=_attempt(board, pods, reason, now, broken=False))


def _mend(board: Board, group: Generation, pods: tuple[Pod, ...], broken: str) -> Decision:
    """The group is broken: the remaining pods go on, or wait with their state in memory."""
    master = any(pod.is_master and not is_ready(board.member(pod.uid)) for pod in group.pods)
    reason = "MasterLost" if master else "Loss"
    problem = why_not(board, pods)
    if problem:
        late = _late(board)
        told = f"{late[0].pod.name} gets ready" if late and not pods else problem
        if board.parked:
            return Decision("stay", f"the state is kept in memory: {told}")
        return Decision("park", f"{broken}; {told}", reason=reason)
    if (awaited := _awaits_store(board, pods[0])) is not None:
        return awaited
    return Decision("prepare", broken, reason=reason, attempt=_attempt(board, pods, reason, 0.0, broken=True))


def _awaits_store(board: Board, first: Pod) -> Decision | None:
    """The next group meets in a store of its first pod; a worker serves one once it was told to."""
    host = words.member(board, first)
    if host.store_port:
        return None
    if first.uid != board.me and not host.hosts:
        return Decision("host", f"{first.name} serves the store until the master is back", pods=(first,))
    return Decision("stay", f"the store of {first.name} is about to start")


def _wait_together(board: Board, sentence: str, now: float) -> Decision:
    """All stop after the same step."""
    attempt = replace(_attempt(board, (), "Leave", now, broken=False), sentence=sentence)
    return Decision("park", sentence, reason="Leave", attempt=attempt)


def _attempt(board: Board, pods: tuple[Pod, ...], reason: str, now: float, *, broken: bool) -> Regroup:
    return Regroup(next_generation(board, pods, reason), board.attempts + 1, broken=broken, since=now)


def _follow(board: Board, attempt: Regroup, pods: tuple[Pod, ...], broken: str, now: float) -> Decision:
    """A change is under way."""
    if pods != attempt.group.pods or bool(broken) != attempt.broken:
        return Decision("cancel", "who takes part has changed meanwhile")
    limit = FORM_SECONDS + (0.0 if attempt.stage == Stage.FORMING else AGREE_SECONDS)
    if attempt.problem or now >= attempt.since + limit:
        why = attempt.problem or "not all answered in time"
        return _again(board, attempt, f"generation {attempt.group.number} did not come about: {why}")
    if attempt.stage == Stage.FORMING:
        missing = [pod.name for pod in attempt.group.pods if pod.uid not in attempt.formed]
        if missing:
            told = f"generation {attempt.group.number} forms; {missing[0]} has not said that it has"
            return Decision("stay", told, until=attempt.since + FORM_SECONDS)
        if attempt.broken:
            return Decision("bind", _go_over(attempt))
        return Decision("ask", "when the group may change")
    assert board.group is not None
    old = [pod.uid for pod in board.group.pods]
    until = attempt.since + FORM_SECONDS + AGREE_SECONDS
    if attempt.stage == Stage.ASKING:
        if all(uid in attempt.passed for uid in old):
            return Decision("propose", f"step {max(attempt.passed.values()) + attempt.margin} from now")
        return Decision("stay", "its moment is asked for", until=until)
    if any(agreed is False for agreed in attempt.agreed.values()):
        return Decision("ask", "some were faster; a later moment is asked for")
    if all(attempt.agreed.get(uid) for uid in old):
        return Decision("bind", _go_over(attempt))
    return Decision("stay", "its moment is being agreed on", until=until)


def follow_to_checkpoint(board: Board, attempt: Regroup, change: Decision, now: float) -> Decision:
    """A change for which all processes write a checkpoint and start again; without one if that takes too long."""
    if attempt.stage != Stage.SAVING:
        following = _follow(board, attempt, (), "", now)
        return following if following.act in ("ask", "propose", "bind", "stay") else replace(change, act="stop")
    assert board.group is not None
    missing = [pod.name for pod in board.group.pods if pod.uid not in attempt.saved]
    ends = [end - SAVE_MARGIN_SECONDS for end in leaving(board, board.group)]
    until = min([attempt.since + SAVE_SECONDS, *ends])
    if missing and now < until:
        return Decision("stay", f"{change.sentence}; {missing[0]} still writes its checkpoint", until=until)
    whole = not missing and all(attempt.saved.values())
    told = change.sentence if whole else f"{change.sentence}; the checkpoint was not written"
    return replace(change, act="stop", sentence=told, seconds=0.0 if whole else None)


def _again(board: Board, attempt: Regroup, told: str) -> Decision:
    """It failed: tried again; without newcomers if it was often; from the start if there are none."""
    if failed_attempts(board, attempt.group.pods) + 1 < MOST_ATTEMPTS:
        return Decision("retry", told)
    assert board.group is not None
    if any(pod.uid not in board.group.uids for pod in attempt.group.pods):
        return Decision("refuse", f"{told}; the newcomers are left out")
    return Decision("stop", f"{told}; the processes start again", reason=attempt.group.reason)


def _too_few(board: Board) -> str:
    return f"the others wait with what they have in memory: {why_not(board, ())}"


def _go_over(attempt: Regroup) -> str:
    return f"{len(attempt.group.pods)} pods go on" if attempt.group.pods else attempt.sentence
