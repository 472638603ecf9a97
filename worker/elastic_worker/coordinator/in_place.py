"""Decides for a group whose processes switch to the next one without a restart: `decide_in_place(state, group, now)`.

    (training) ──prepare──► forming ──ask──► asking ──propose──► proposed ──bind──► (training, as the next group)

The next group is formed beside the one that trains. All ranks that train agree on the boundary at which they switch: a
few after the latest that any of them has passed. A rank that has agreed waits there. All switch together, or none does.
A group that has lost a pod is broken and can do no further step: its processes wait, so there is nothing to agree on.

The functions are pure, as `decide` is.
"""

from __future__ import annotations

from dataclasses import replace

from elastic_worker.coordinator.choose import (
    first_failure,
    is_wanted,
    leave_deadlines,
    lost_pods,
    reconnect_deadline,
    select_in_rank_order,
    why_not_train,
)
from elastic_worker.coordinator.decision import LOOK_SECONDS, Decision, failed_for_good, next_generation
from elastic_worker.coordinator.describe import describe_change, names
from elastic_worker.coordinator.member import Joined, Member, NotReady, Ready, Starting
from elastic_worker.coordinator.model import Failure, Generation, Membership, Pod
from elastic_worker.coordinator.state import CoordinatorState, RegroupAttempt, Stage

FORM_SECONDS = 6.0
"""How long a group may take to form: longer than its processes wait for each other."""
AGREE_SECONDS = 5.0
"""How long the ranks may take to agree on a boundary, after the group has formed."""
NEWCOMER_SECONDS = 10.0
"""How long the coordinator waits for further newcomers after the first one is ready."""
SAVE_SECONDS = 1800.0
"""How long the ranks may take to write a checkpoint together, before they are restarted."""
SAVE_MARGIN_SECONDS = 2.0
"""The part of a leaving pod's remaining time that is kept for stopping its processes."""
MOST_ATTEMPTS = 3
"""After this many failed attempts newcomers are left out until they reconnect; without newcomers all restart."""
ASKED = "all pods are asked how far they are"


def decide_in_place(state: CoordinatorState, group: Generation, now: float) -> Decision:
    """Return the next thing to do for a group whose processes are in it, or on their way to it."""
    failed = _decide_on_failure(state, group)
    if failed is not None:
        return failed
    stalled = decide_on_stall(state, group)
    if stalled is not None:
        return stalled
    broken, members = _why_broken(state, group, now), state.members_of(group.pods)
    absent = [m.pod.name for m in members if not m.is_connected]
    if absent and not broken:
        return Decision("stay", f"{absent[0]} may come back", until=reconnect_deadline(state, group))
    newcomers = _newcomers_to_start(state)
    if newcomers:
        named = ", ".join(pod.name for pod in newcomers[:3])
        return Decision("candidates", f"{named} get ready to join", pods=newcomers)
    pods = _next_pods(state)
    if state.attempt is not None:
        return _continue_attempt(state, state.attempt, pods, broken, now)
    if broken:
        return _recover(state, group, pods, broken)
    joined = Joined(group.number)
    behind = [m.pod.name for m in members if m.processes != joined]
    if behind:
        # Until then the pod counts the boundaries of the last group, which the next attempt must not get.
        return Decision("stay", f"{behind[0]} goes over to generation {group.number}", until=now + LOOK_SECONDS)
    if not any(m.is_available for m in members):
        return _park_all(state, f"all {len(group.pods)} pods leave", now)
    return _planned(state, group, pods, now)


# -- what is wrong -----------------------------------------------------------------------------------------------------


def _decide_on_failure(state: CoordinatorState, group: Generation) -> Decision | None:
    """Count a process that failed; fail the job after too many in a row."""
    if first := first_failure(state, group):
        return Decision("count_failure", f"{first.pod}: {first.message}", failure=first)
    return failed_for_good(state)


def decide_on_stall(state: CoordinatorState, group: Generation) -> Decision | None:
    """Restart the group from the checkpoint if every rank's step takes far too long, and name the slowest rank."""
    members = state.members_of(group.pods)
    stuck = [m.stuck for m in members if m.stuck and m.processes.number == m.stuck.generation == group.number]
    if len(stuck) < len(group.pods):
        return None
    first = min(stuck, key=lambda each: (each.boundary, each.rank))
    problem = f"no step for {first.seconds:.0f} s; rank {first.rank} is least far, at boundary {first.boundary}"
    failure = Failure(group.number, first.rank, -1, problem, is_stall=True)
    return Decision("stop", problem, reason="Failure", failure=failure)


def _why_broken(state: CoordinatorState, group: Generation, now: float) -> str:
    """Return why the group can do no further step; "" if it can."""
    lost = lost_pods(state, group, now)
    if lost:
        return f"lost {names(lost)}"
    for member in state.members_of(group.pods):
        if member.is_connected and not member.belongs_to(group.number):
            return f"{member.pod.name} has lost a process, or its peers"
    return state.parked


# -- the pods of the next group ----------------------------------------------------------------------------------------


def _newcomers_to_start(state: CoordinatorState) -> tuple[Pod, ...]:
    """Return the pods that are to start their missing processes."""
    assert state.group is not None
    number = state.group.number
    late = [m for m in state.members.values() if isinstance(m.readiness, NotReady) and not m.belongs_to(number)]
    late = [m for m in late if m.warm_at is not None or m.processes.number]
    able = [m.pod for m in late if m.is_available and is_wanted(state, m.pod.uid)]
    return tuple(sorted(able, key=lambda pod: (pod.index, pod.uid)))


def _next_pods(state: CoordinatorState) -> tuple[Pod, ...]:
    """Return the pods of the best group that is ready; none if they are too few, or wait for the master's pod."""
    if state.membership is None:
        return ()
    able = [m for m in state.members.values() if m.is_ready and is_wanted(state, m.pod.uid)]
    return select_in_rank_order(state, able) or _without_master(state, state.membership)


def _without_master(state: CoordinatorState, membership: Membership) -> tuple[Pod, ...]:
    """Return the workers of the group, while the master's pod leaves or its successor is not warm yet (125).

    Return none if one of them is not ready: it may be ready before the master's processes.
    """
    assert state.group is not None
    if _is_master_coming(state):
        return ()
    workers = [m for m in state.members_of(state.group.pods) if not (m.pod.is_master or m.is_leaving)]
    if not all(m.is_ready and m.understands_parts and is_wanted(state, m.pod.uid) for m in workers):
        return ()
    pods = tuple(m.pod for m in workers[: membership.largest(len(workers))])
    return pods if failed_attempts(state, pods) < MOST_ATTEMPTS - 1 else ()


def failed_attempts(state: CoordinatorState, pods: tuple[Pod, ...]) -> int:
    """Return how many attempts at a group of just these pods have failed in a row."""
    return state.failed_attempts if state.tried == pods else 0


def _is_master_coming(state: CoordinatorState) -> bool:
    """Whether the master's processes are about to be ready. False while a group forms without them, which continues."""
    if state.attempt is not None and state.attempt.group.is_without_master:
        return False
    master = state.members.get(state.own_uid)
    return master is not None and master.is_available and master.warm_at is not None


def _starting_newcomers(state: CoordinatorState) -> list[Member]:
    """Return the newcomers that were ordered to start their processes and are not ready yet."""
    members = [m for m in state.members.values() if isinstance(m.readiness, Starting) and m.is_available]
    return [m for m in members if is_wanted(state, m.pod.uid)]


# -- changes -----------------------------------------------------------------------------------------------------------


def _planned(state: CoordinatorState, group: Generation, pods: tuple[Pod, ...], now: float) -> Decision:
    """Decide for a group that is not broken: let newcomers join, and leaving pods leave."""
    if not pods:
        going = [m.pod for m in state.members_of(group.pods) if not m.is_available]
        if not going:
            joining = "the master's processes get ready to join"
            waiting = joining if group.is_without_master else why_not_train(state, pods)
            return Decision("stay", waiting, until=now + LOOK_SECONDS)
        return _park_all(state, f"{describe_change(state, going, [])}; {_others_wait(state)}", now)
    late = _starting_newcomers(state)
    staying = {pod.uid for pod in pods}
    if staying == group.uids:
        sentence = f"{late[0].pod.name} gets ready to join" if late else f"{len(group.pods)} pods train"
        return Decision("stay", sentence, until=now + LOOK_SECONDS)
    going = [pod for pod in group.pods if pod.uid not in staying]
    coming = [pod for pod in pods if pod.uid not in group.uids]
    if not going and late:
        ready = [m.readiness for m in state.members_of(coming)]
        first = min(each.since for each in ready if isinstance(each, Ready))
        if now < first + NEWCOMER_SECONDS:
            waiting = f"{len(coming)} pods are ready to join; {len(late)} more get ready"
            return Decision("stay", waiting, until=first + NEWCOMER_SECONDS)
    if (no_store := _wait_for_store(state, pods[0])) is not None:
        return no_store
    reason = "Leave" if going else "Join"
    sentence = describe_change(state, going, coming)
    return Decision("prepare", sentence, reason=reason, attempt=_new_attempt(state, pods, reason, now, broken=False))


def _recover(state: CoordinatorState, group: Generation, pods: tuple[Pod, ...], broken: str) -> Decision:
    """Decide for a broken group: the remaining pods continue training, or wait with their state in memory."""
    master = any(m.pod.is_master and not m.is_ready for m in state.members_of(group.pods))
    reason = "MasterLost" if master else "Loss"
    problem = why_not_train(state, pods)
    if problem:
        late = _starting_newcomers(state)
        waiting = f"{late[0].pod.name} gets ready" if late and not pods else problem
        if state.parked:
            return Decision("stay", f"the state is kept in memory: {waiting}")
        return Decision("wait_broken", f"{broken}; {waiting}", reason=reason)
    if (no_store := _wait_for_store(state, pods[0])) is not None:
        return no_store
    return Decision("prepare", broken, reason=reason, attempt=_new_attempt(state, pods, reason, 0.0, broken=True))


def _wait_for_store(state: CoordinatorState, first: Pod) -> Decision | None:
    """Wait for the store of the next group's first pod; a worker is ordered to serve one. None: the store is ready."""
    (host,) = state.members_of([first])
    if host.store_port:
        return None
    if first.uid != state.own_uid and not host.hosts:
        return Decision("host", f"{first.name} serves the store until the master is back", pods=(first,))
    return Decision("stay", f"the store of {first.name} is about to start")


def _park_all(state: CoordinatorState, sentence: str, now: float) -> Decision:
    """Let all processes wait after the same step, in no group."""
    attempt = replace(_new_attempt(state, (), "Leave", now, broken=False), sentence=sentence)
    return Decision("prepare_wait", sentence, reason="Leave", attempt=attempt)


def _new_attempt(
    state: CoordinatorState, pods: tuple[Pod, ...], reason: str, now: float, *, broken: bool
) -> RegroupAttempt:
    return RegroupAttempt(next_generation(state, pods, reason), state.attempts + 1, broken=broken, since=now)


def _continue_attempt(
    state: CoordinatorState, attempt: RegroupAttempt, pods: tuple[Pod, ...], broken: str, now: float
) -> Decision:
    """Decide on the next stage of the attempt under way, or its end."""
    if pods != attempt.group.pods or bool(broken) != attempt.broken:
        return Decision("cancel", "the members have changed meanwhile")
    limit = FORM_SECONDS + (0.0 if attempt.stage == Stage.FORMING else AGREE_SECONDS)
    if attempt.problem or now >= attempt.since + limit:
        why = attempt.problem or "not all answered in time"
        return _retry(state, attempt, f"generation {attempt.group.number} did not come about: {why}")
    if attempt.stage == Stage.FORMING:
        missing = [pod.name for pod in attempt.group.pods if pod.uid not in attempt.formed]
        if missing:
            waiting = f"generation {attempt.group.number} forms; {missing[0]} has not said that it has"
            return Decision("stay", waiting, until=attempt.since + FORM_SECONDS)
        if attempt.broken:
            return Decision("bind", _switch_sentence(attempt))
        return Decision("ask", ASKED)
    assert state.group is not None
    old = [pod.uid for pod in state.group.pods]
    until = attempt.since + FORM_SECONDS + AGREE_SECONDS
    if attempt.stage == Stage.ASKING:
        if all(uid in attempt.boundaries for uid in old):
            at = max(attempt.boundaries.values()) + attempt.margin
            return Decision("propose", f"all are to switch at boundary {at}")
        return Decision("stay", ASKED, until=until)
    if any(agreed is False for agreed in attempt.agreed.values()):
        return Decision("ask", f"some have passed boundary {attempt.boundary}; a later one is proposed")
    if all(attempt.agreed.get(uid) for uid in old):
        return Decision("bind", _switch_sentence(attempt))
    return Decision("stay", f"not all have agreed to switch at boundary {attempt.boundary} yet", until=until)


def continue_to_checkpoint(state: CoordinatorState, attempt: RegroupAttempt, change: Decision, now: float) -> Decision:
    """Continue an attempt whose processes write a checkpoint and restart; without a checkpoint if it takes too long."""
    if attempt.stage != Stage.SAVING:
        decision = _continue_attempt(state, attempt, (), "", now)
        return decision if decision.act in ("ask", "propose", "bind", "stay") else replace(change, act="stop")
    assert state.group is not None
    missing = [pod.name for pod in state.group.pods if pod.uid not in attempt.saved]
    ends = [end - SAVE_MARGIN_SECONDS for end in leave_deadlines(state, state.group)]
    until = min([attempt.since + SAVE_SECONDS, *ends])
    if missing and now < until:
        return Decision("stay", f"{change.sentence}; {missing[0]} still writes its checkpoint", until=until)
    if not missing and all(attempt.saved.values()):
        return replace(change, act="stop", seconds=0.0)
    return replace(change, act="stop", sentence=f"{change.sentence}; the checkpoint was not written", seconds=None)


def _retry(state: CoordinatorState, attempt: RegroupAttempt, problem: str) -> Decision:
    """Retry a failed attempt; after too many leave the newcomers out, or restart the processes if there are none."""
    if failed_attempts(state, attempt.group.pods) + 1 < MOST_ATTEMPTS:
        return Decision("retry", problem)
    assert state.group is not None
    if any(pod.uid not in state.group.uids for pod in attempt.group.pods):
        return Decision("refuse", f"{problem}; the newcomers are left out")
    return Decision("stop", f"{problem}; the processes start again", reason=attempt.group.reason)


def _others_wait(state: CoordinatorState) -> str:
    return f"the others wait with what they have in memory: {why_not_train(state, ())}"


def _switch_sentence(attempt: RegroupAttempt) -> str:
    return f"{len(attempt.group.pods)} pods go on" if attempt.group.pods else attempt.sentence
