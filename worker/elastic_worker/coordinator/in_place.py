"""What to do with a group whose processes change it without being started again: `decide_in_place(state, group, now)`.

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
from elastic_worker.coordinator.member import Joined, Member, NotReady, Ready, Starting
from elastic_worker.coordinator.model import Failure, Generation, Pod, Wish
from elastic_worker.coordinator.state import CoordinatorState, Regroup, Stage

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


def decide_in_place(state: CoordinatorState, group: Generation, now: float) -> Decision:
    """The next thing to do, for a group all of whose processes are in it, or are on their way."""
    failed = _failed(state, group)
    if failed is not None:
        return failed
    stalled = why_stalled(state, group)
    if stalled is not None:
        return stalled
    broken, members = _why_broken(state, group, now), state.members_of(group.pods)
    absent = [m.pod.name for m in members if not m.where.connected]
    if absent and not broken:
        return Decision("stay", f"{absent[0]} may come back", until=reconnects(state, group))
    newcomers = _newcomers_to_tell(state)
    if newcomers:
        names = ", ".join(pod.name for pod in newcomers[:3])
        return Decision("candidates", f"{names} get ready to join", pods=newcomers)
    pods = _pods(state)
    if state.attempt is not None:
        return _follow(state, state.attempt, pods, broken, now)
    if broken:
        return _mend(state, group, pods, broken)
    joined = Joined(group.number)
    behind = [m.pod.name for m in members if m.processes != joined]
    if behind:
        # Of the boundaries that it passes until then, the next change knows nothing.
        return Decision("stay", f"{behind[0]} goes over to generation {group.number}", until=now + LOOK_SECONDS)
    if not any(m.here for m in members):
        return _wait_together(state, f"all {len(group.pods)} pods leave", now)
    return _planned(state, group, pods, now)


# -- what is wrong -----------------------------------------------------------------------------------------------------


def _failed(state: CoordinatorState, group: Generation) -> Decision | None:
    """A process that failed is counted; too many, and it is over for this group."""
    failures = [m.failure for m in state.members.values() if m.failure and m.failure.generation == group.number]
    if failures:
        first = min(failures, key=lambda f: (f.is_consequence, f.at, f.rank))
        return Decision("count", f"{first.pod}: {first.message}", failure=first)
    return over_for_good(state)


def why_stalled(state: CoordinatorState, group: Generation) -> Decision | None:
    """Every rank's step takes far too long: name the rank that is least far, and start again from the checkpoint."""
    members = state.members_of(group.pods)
    stuck = [m.stuck for m in members if m.stuck and m.processes.number == group.number]
    same = [each for each in stuck if each is not None and each.get("generation") == group.number]
    if len(same) < len(group.pods):
        return None
    first = min(same, key=lambda each: (each["tick"], each["rank"]))
    told = f"no step for {first['seconds']:.0f} s; rank {first['rank']} is least far, at boundary {first['tick']}"
    failure = Failure(group.number, first["rank"], -1, told, is_stall=True)
    return Decision("stop", told, reason="Failure", failure=failure)


def _why_broken(state: CoordinatorState, group: Generation, now: float) -> str:
    """Why the group that trains can do no further step; "" if it can."""
    gone = lost(state, group, now)
    if gone:
        return f"lost {words.names(gone)}"
    for member in state.members_of(group.pods):
        if member.where.connected and not member.takes_part(group.number):
            return f"{member.pod.name} has lost a process, or its peers"
    return state.parked


# -- the pods of the next group ----------------------------------------------------------------------------------------


def _newcomers_to_tell(state: CoordinatorState) -> tuple[Pod, ...]:
    """Pods that are to start their processes, or those that they have lost."""
    assert state.group is not None
    number = state.group.number
    late = [m for m in state.members.values() if isinstance(m.readiness, NotReady) and not m.takes_part(number)]
    late = [m for m in late if m.warm_at is not None or m.processes.number]
    able = [m.pod for m in late if m.here and is_wanted(state, m.pod.uid)]
    return tuple(sorted(able, key=lambda pod: (pod.index, pod.uid)))


def _pods(state: CoordinatorState) -> tuple[Pod, ...]:
    """The best group of pods that are ready; none if they are too few, or wait for the master's."""
    if state.wish is None:
        return ()
    able = [m for m in state.members.values() if m.is_ready and is_wanted(state, m.pod.uid)]
    return in_order(state, able) or _without_master(state, state.wish)


def _without_master(state: CoordinatorState, wish: Wish) -> tuple[Pod, ...]:
    """The others of the group, while the master's pod leaves or its successor is not warm yet (125).

    All of them, or none: a pod that is not ready yet may be ready before the master's processes.
    """
    assert state.group is not None
    if _is_master_near(state):
        return ()
    rest = [m for m in state.members_of(state.group.pods) if not (m.pod.is_master or m.leaves)]
    if not all(m.is_ready and m.takes_parts and is_wanted(state, m.pod.uid) for m in rest):
        return ()
    pods = tuple(m.pod for m in rest[: wish.largest(len(rest))])
    return pods if failed_attempts(state, pods) < MOST_ATTEMPTS - 1 else ()


def failed_attempts(state: CoordinatorState, pods: tuple[Pod, ...]) -> int:
    """How often in a row a group of just these pods did not come about."""
    return state.failed_attempts if state.tried == pods else 0


def _is_master_near(state: CoordinatorState) -> bool:
    """Whether its processes are ready in a moment. A group that forms without them is not given up for that."""
    if state.attempt is not None and state.attempt.group.is_without_master:
        return False
    master = state.members.get(state.me)
    return master is not None and master.here and master.warm_at is not None


def _late(state: CoordinatorState) -> list[Member]:
    """Newcomers that have been told to get ready and are not yet."""
    members = [m for m in state.members.values() if isinstance(m.readiness, Starting) and m.here]
    return [m for m in members if is_wanted(state, m.pod.uid)]


# -- changes -----------------------------------------------------------------------------------------------------------


def _planned(state: CoordinatorState, group: Generation, pods: tuple[Pod, ...], now: float) -> Decision:
    """Nothing is broken: grow, or let leaving pods go."""
    if not pods:
        going = [m.pod for m in state.members_of(group.pods) if not m.here]
        if not going:
            told = "the master's processes get ready to join" if group.is_without_master else why_not(state, pods)
            return Decision("stay", told, until=now + LOOK_SECONDS)
        return _wait_together(state, f"{words.what_changes(state, going, [])}; {_too_few(state)}", now)
    late = _late(state)
    staying = {pod.uid for pod in pods}
    if staying == group.uids:
        told = f"{late[0].pod.name} gets ready to join" if late else f"{len(group.pods)} pods train"
        return Decision("stay", told, until=now + LOOK_SECONDS)
    going = [pod for pod in group.pods if pod.uid not in staying]
    coming = [pod for pod in pods if pod.uid not in group.uids]
    if not going and late:
        ready = [m.readiness for m in state.members_of(coming)]
        first = min(each.since for each in ready if isinstance(each, Ready))
        if now < first + NEWCOMER_SECONDS:
            told = f"{len(coming)} pods are ready to join; {len(late)} more get ready"
            return Decision("stay", told, until=first + NEWCOMER_SECONDS)
    if (awaited := _awaits_store(state, pods[0])) is not None:
        return awaited
    reason = "Leave" if going else "Join"
    sentence = words.what_changes(state, going, coming)
    return Decision("prepare", sentence, reason=reason, attempt=_attempt(state, pods, reason, now, broken=False))


def _mend(state: CoordinatorState, group: Generation, pods: tuple[Pod, ...], broken: str) -> Decision:
    """The group is broken: the remaining pods go on, or wait with their state in memory."""
    master = any(m.pod.is_master and not m.is_ready for m in state.members_of(group.pods))
    reason = "MasterLost" if master else "Loss"
    problem = why_not(state, pods)
    if problem:
        late = _late(state)
        told = f"{late[0].pod.name} gets ready" if late and not pods else problem
        if state.parked:
            return Decision("stay", f"the state is kept in memory: {told}")
        return Decision("park", f"{broken}; {told}", reason=reason)
    if (awaited := _awaits_store(state, pods[0])) is not None:
        return awaited
    return Decision("prepare", broken, reason=reason, attempt=_attempt(state, pods, reason, 0.0, broken=True))


def _awaits_store(state: CoordinatorState, first: Pod) -> Decision | None:
    """The next group meets in a store of its first pod; a worker serves one once it was told to."""
    (host,) = state.members_of([first])
    if host.store_port:
        return None
    if first.uid != state.me and not host.hosts:
        return Decision("host", f"{first.name} serves the store until the master is back", pods=(first,))
    return Decision("stay", f"the store of {first.name} is about to start")


def _wait_together(state: CoordinatorState, sentence: str, now: float) -> Decision:
    """All stop after the same step."""
    attempt = replace(_attempt(state, (), "Leave", now, broken=False), sentence=sentence)
    return Decision("park", sentence, reason="Leave", attempt=attempt)


def _attempt(state: CoordinatorState, pods: tuple[Pod, ...], reason: str, now: float, *, broken: bool) -> Regroup:
    return Regroup(next_generation(state, pods, reason), state.attempts + 1, broken=broken, since=now)


def _follow(state: CoordinatorState, attempt: Regroup, pods: tuple[Pod, ...], broken: str, now: float) -> Decision:
    """A change is under way."""
    if pods != attempt.group.pods or bool(broken) != attempt.broken:
        return Decision("cancel", "who takes part has changed meanwhile")
    limit = FORM_SECONDS + (0.0 if attempt.stage == Stage.FORMING else AGREE_SECONDS)
    if attempt.problem or now >= attempt.since + limit:
        why = attempt.problem or "not all answered in time"
        return _again(state, attempt, f"generation {attempt.group.number} did not come about: {why}")
    if attempt.stage == Stage.FORMING:
        missing = [pod.name for pod in attempt.group.pods if pod.uid not in attempt.formed]
        if missing:
            told = f"generation {attempt.group.number} forms; {missing[0]} has not said that it has"
            return Decision("stay", told, until=attempt.since + FORM_SECONDS)
        if attempt.broken:
            return Decision("bind", _go_over(attempt))
        return Decision("ask", "when the group may change")
    assert state.group is not None
    old = [pod.uid for pod in state.group.pods]
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


def follow_to_checkpoint(state: CoordinatorState, attempt: Regroup, change: Decision, now: float) -> Decision:
    """A change for which all processes write a checkpoint and start again; without one if that takes too long."""
    if attempt.stage != Stage.SAVING:
        following = _follow(state, attempt, (), "", now)
        return following if following.act in ("ask", "propose", "bind", "stay") else replace(change, act="stop")
    assert state.group is not None
    missing = [pod.name for pod in state.group.pods if pod.uid not in attempt.saved]
    ends = [end - SAVE_MARGIN_SECONDS for end in leaving(state, state.group)]
    until = min([attempt.since + SAVE_SECONDS, *ends])
    if missing and now < until:
        return Decision("stay", f"{change.sentence}; {missing[0]} still writes its checkpoint", until=until)
    whole = not missing and all(attempt.saved.values())
    told = change.sentence if whole else f"{change.sentence}; the checkpoint was not written"
    return replace(change, act="stop", sentence=told, seconds=0.0 if whole else None)


def _again(state: CoordinatorState, attempt: Regroup, told: str) -> Decision:
    """It failed: tried again; without newcomers if it was often; from the start if there are none."""
    if failed_attempts(state, attempt.group.pods) + 1 < MOST_ATTEMPTS:
        return Decision("retry", told)
    assert state.group is not None
    if any(pod.uid not in state.group.uids for pod in attempt.group.pods):
        return Decision("refuse", f"{told}; the newcomers are left out")
    return Decision("stop", f"{told}; the processes start again", reason=attempt.group.reason)


def _too_few(state: CoordinatorState) -> str:
    return f"the others wait with what they have in memory: {why_not(state, ())}"


def _go_over(attempt: Regroup) -> str:
    return f"{len(attempt.group.pods)} pods go on" if attempt.group.pods else attempt.sentence
