"""Chooses the pods of the next group, and decides whether they may train: pure functions of the coordinator's state."""

from __future__ import annotations

from elastic_worker.coordinator.member import Disconnected, Finished, GivenUp, Member
from elastic_worker.coordinator.model import Failure, Generation, Pod
from elastic_worker.coordinator.state import CoordinatorState

NEWCOMER_SECONDS = 10.0
"""How long the coordinator waits for further expected pods after the first newcomer is warm."""
RECONNECT_SECONDS = 1.0
"""How long a member may take to reconnect after its connection broke, unless something else shows that it is lost."""


def choose_pods(state: CoordinatorState) -> tuple[Pod, ...]:
    """Return the pods of the best group now, in the order of their ranks; none if there is no allowed size.

    The master's processes come first, survivors keep their order, newcomers follow by index.
    """
    return select_in_rank_order(state, [m for m in state.members.values() if _is_able(state, m)])


def select_in_rank_order(state: CoordinatorState, able: list[Member]) -> tuple[Pod, ...]:
    """Return as many of these as may train, in the order of their ranks; none without this master, or if too few."""
    previous_places = {pod.uid: place for place, pod in enumerate(state.group.pods)} if state.group else {}
    if state.membership is None or not any(m.pod.uid == state.own_uid for m in able):
        return ()
    able.sort(
        key=lambda m: (
            m.pod.uid != state.own_uid,
            previous_places.get(m.pod.uid, len(previous_places)),
            m.pod.index,
            m.pod.uid,
        )
    )
    return tuple(m.pod for m in able[: state.membership.largest(len(able))])


def is_wanted(state: CoordinatorState, uid: str) -> bool:
    """Whether the membership names the pod; the coordinator's own pod takes part in any case."""
    return state.membership is not None and (uid in state.membership.members or uid == state.own_uid)


def _is_able(state: CoordinatorState, member: Member) -> bool:
    """Whether the pod is available, wanted and warm; a pod of the last group may start its processes cold."""
    is_warm = member.warm_at is not None or _was_in(state, member.pod.uid)
    return member.is_available and is_wanted(state, member.pod.uid) and is_warm


def _was_in(state: CoordinatorState, uid: str) -> bool:
    return state.group is not None and uid in state.group.uids


def expected_newcomers(state: CoordinatorState) -> list[str]:
    """Return the uids in the membership of pods that could not take part yet: never connected, or not warm."""
    if state.membership is None:
        return []
    return sorted(uid for uid in state.membership.members | {state.own_uid} if _is_awaited(state, uid))


def _is_awaited(state: CoordinatorState, uid: str) -> bool:
    member = state.members.get(uid)
    if member is None:
        return True
    return member.is_available and member.warm_at is None and not _was_in(state, uid)


def newcomer_deadline(state: CoordinatorState) -> float:
    """Return when to stop waiting for further newcomers: some seconds after the first one is warm."""
    previous_uids = state.group.uids if state.group else frozenset()
    newcomers = [m for m in state.members.values() if m.is_available and m.pod.uid not in previous_uids]
    warm = [m.warm_at for m in newcomers if m.warm_at is not None]
    return min(warm, default=state.started) + NEWCOMER_SECONDS


def lost_pods(state: CoordinatorState, group: Generation, now: float) -> list[Pod]:
    """Return the pods of the group that are lost.

    Their connection broke, and either they did not reconnect in time or a process of the group failed. Pods whose
    processes have finished are not missed.
    """
    failing = any(m.failure is not None and m.failure.generation == group.number for m in state.members.values())
    lost = [m for m in state.members_of(group.pods) if _is_lost(m, failing, now)]
    return [m.pod for m in lost if m.processes != Finished(group.number)]


def is_script_failure(state: CoordinatorState, group: Generation, now: float) -> bool:
    """Whether a failure in the group is the script's: no pod of the group is lost or leaves."""
    return not (lost_pods(state, group, now) or leave_deadlines(state, group))


def leave_deadlines(state: CoordinatorState, group: Generation) -> list[float]:
    """Return when the processes of the leaving pods end, for the pods of this group only.

    Pods stay members after they have left, to be recognized when they reconnect: pods of earlier groups are skipped
    here.
    """
    ends = [member.presence.leaving_until for member in state.members_of(group.pods)]
    return [end for end in ends if end is not None]


def _is_lost(member: Member, failing: bool, now: float) -> bool:
    if isinstance(member.readiness, GivenUp):
        return True
    if isinstance(member.presence, Disconnected):
        return failing or now >= member.presence.until
    return not member.is_connected


def reconnect_deadline(state: CoordinatorState, group: Generation) -> float | None:
    """Return when the first of the group's disconnected pods counts as lost; None if none is disconnected."""
    disconnected = [m for m in state.members_of(group.pods) if not m.is_connected]
    unfinished = [m.presence for m in disconnected if m.processes != Finished(group.number)]
    return min((presence.until for presence in unfinished if isinstance(presence, Disconnected)), default=None)


def first_failure(state: CoordinatorState, group: Generation) -> Failure | None:
    """Return the failure that caused the others in the group; None if no process of it has failed."""
    failures = [m.failure for m in state.members.values() if m.failure and m.failure.generation == group.number]
    return min(failures, key=lambda f: (f.is_consequence, f.at, f.rank), default=None)


def why_not_train(state: CoordinatorState, pods: tuple[Pod, ...]) -> str:
    """Return why these pods may not train by themselves; "" if they may.

    Two halves of a cut network must not both train, so more than half of the last group has to be connected. Pods that
    said goodbye do not count. A connected pod obeys this coordinator, whether it can train or not. Fewer pods may
    train, too, if the membership is newer than the group's, since the operator has then agreed, or if no other master
    is started while this one runs (134).
    """
    group = state.group
    if state.membership is None:
        return "the operator has not said yet which pods take part"
    if not pods:
        return _too_few(state)
    is_newer = group is None or (state.epoch, state.membership.number) > (group.epoch, group.membership_number)
    if group is None or is_newer or not state.membership.has_successor:
        return ""
    stay = [m for m in state.members_of(group.pods) if not m.is_leaving]
    connected = [m for m in stay if m.is_connected]
    if 2 * len(connected) > len(stay) or connected == stay:
        return ""
    half = f"only {len(connected)} of the {len(stay)} pods of generation {group.number} are here, not more than half"
    return f"{half}: the others may be training; it goes on when they return, or when the operator names its pods"


def _too_few(state: CoordinatorState) -> str:
    assert state.membership is not None
    warm = sum(m.is_available and m.warm_at is not None for m in state.members.values())
    master = state.members.get(state.own_uid)
    if master is None or isinstance(master.presence, Disconnected):
        return "the master's own launcher is not connected yet"
    if isinstance(master.readiness, GivenUp):
        return f"the master's pod is given up ({master.readiness.why}); the others wait for a new one"
    if not master.is_available:
        return "the master is about to leave; the others wait for a new one"
    if not _is_able(state, master):
        return "the master is not warm yet; all others wait for it"
    return f"{warm} pods are warm, the smallest allowed group has {_smallest(state)}"


def _smallest(state: CoordinatorState) -> int:
    assert state.membership is not None
    return min((s for s in state.membership.sizes if s >= state.membership.fewest), default=state.membership.fewest)
