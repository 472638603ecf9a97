"""Which pods make the next group, and whether they may: pure functions of the coordinator's state."""

from __future__ import annotations

from elastic_worker.coordinator.member import Away, Finished, GivenUp, Member
from elastic_worker.coordinator.model import Generation, Pod
from elastic_worker.coordinator.state import CoordinatorState

NEWCOMER_SECONDS = 10.0
"""Further pods that are expected are waited for at most so long after the first newcomer is warm."""
RECONNECT_SECONDS = 1.0
"""A member whose connection broke may come back within this time, while nothing else speaks of its end."""


def chosen(state: CoordinatorState) -> tuple[Pod, ...]:
    """The pods of the best group now, in the order of their ranks; none if there is no allowed size.

    The master's processes come first, survivors keep their order, newcomers follow by index.
    """
    return in_order(state, [m for m in state.members.values() if _is_able(state, m)])


def in_order(state: CoordinatorState, able: list[Member]) -> tuple[Pod, ...]:
    """As many of them as may train, in the order of their ranks; none without this master, or if they are too few."""
    before = {pod.uid: place for place, pod in enumerate(state.group.pods)} if state.group else {}
    if state.wish is None or not any(m.pod.uid == state.me for m in able):
        return ()
    able.sort(key=lambda m: (m.pod.uid != state.me, before.get(m.pod.uid, len(before)), m.pod.index, m.pod.uid))
    return tuple(m.pod for m in able[: state.wish.largest(len(able))])


def is_wanted(state: CoordinatorState, uid: str) -> bool:
    """Whether the wish names the pod; the coordinator's own takes part in any case."""
    return state.wish is not None and (uid in state.wish.members or uid == state.me)


def _is_able(state: CoordinatorState, member: Member) -> bool:
    """Here, wanted, and warm; a pod of the last group may start its processes cold."""
    is_warm = member.warm_at is not None or _was_in(state, member.pod.uid)
    return member.here and is_wanted(state, member.pod.uid) and is_warm


def _was_in(state: CoordinatorState, uid: str) -> bool:
    return state.group is not None and uid in state.group.uids


def expected_newcomers(state: CoordinatorState) -> list[str]:
    """Uids that the wish names and that could not take part yet: never seen here, or not warm yet."""
    if state.wish is None:
        return []
    return sorted(uid for uid in state.wish.members | {state.me} if _is_awaited(state, uid))


def _is_awaited(state: CoordinatorState, uid: str) -> bool:
    member = state.members.get(uid)
    if member is None:
        return True
    return member.here and member.warm_at is None and not _was_in(state, uid)


def patient_until(state: CoordinatorState) -> float:
    """Until when further newcomers are waited for: some seconds from the first one that is warm."""
    before = state.group.uids if state.group else frozenset()
    newcomers = [m for m in state.members.values() if m.here and m.pod.uid not in before]
    warm = [m.warm_at for m in newcomers if m.warm_at is not None]
    return min(warm, default=state.started) + NEWCOMER_SECONDS


def lost(state: CoordinatorState, group: Generation, now: float) -> list[Pod]:
    """Pods of the group that are gone: the connection broke, and did not come back in time or something else failed.

    Nobody misses a pod whose processes have ended well.
    """
    failing = any(m.failure is not None and m.failure.generation == group.number for m in state.members.values())
    gone = [m for m in state.members_of(group.pods) if _is_lost(m, failing, now)]
    return [m.pod for m in gone if m.processes != Finished(group.number)]


def is_to_blame(state: CoordinatorState, group: Generation, now: float) -> bool:
    """Whether a failure in the group is the script's, and not that of pods which went."""
    return not (lost(state, group, now) or leaving(state, group))


def leaving(state: CoordinatorState, group: Generation) -> list[float]:
    """When the processes of those pods of the group end that were asked to go; without pods that left an earlier group.

    A pod stays a member after it has gone, so that it is known if it comes back.
    """
    ends = [member.where.leaving_until for member in state.members_of(group.pods)]
    return [end for end in ends if end is not None]


def _is_lost(member: Member, failing: bool, now: float) -> bool:
    if isinstance(member.readiness, GivenUp):
        return True
    if isinstance(member.where, Away):
        return failing or now >= member.where.until
    return not member.where.connected


def reconnects(state: CoordinatorState, group: Generation) -> float | None:
    """When a pod of the group that is away for a moment is given up; None if none is."""
    gone = [m for m in state.members_of(group.pods) if not m.where.connected]
    unfinished = [m.where for m in gone if m.processes != Finished(group.number)]
    return min((where.until for where in unfinished if isinstance(where, Away)), default=None)


def why_not(state: CoordinatorState, pods: tuple[Pod, ...]) -> str:
    """Why these pods may not train by themselves; "" if they may.

    Two halves of a cut network must not both train. Pods that said goodbye are no half. A connected pod obeys this
    coordinator, whether it can train or not. A wish newer than the group's is the operator's word. Where no other
    master is made while this one runs, its part of the group is the only one that can train (134).
    """
    group = state.group
    if state.wish is None:
        return "the operator has not said yet who is to take part"
    if not pods:
        return _too_few(state)
    is_newer = group is None or (state.epoch, state.wish.number) > (group.epoch, group.wish)
    if group is None or is_newer or not state.wish.has_successor:
        return ""
    stay = [m for m in state.members_of(group.pods) if not m.leaves]
    here = [m for m in stay if m.where.connected]
    if 2 * len(here) > len(stay) or here == stay:
        return ""
    told = f"only {len(here)} of the {len(stay)} pods of generation {group.number} are here, not more than half"
    return f"{told}: the others may be training; it goes on when they return, or when the operator says who takes part"


def _too_few(state: CoordinatorState) -> str:
    assert state.wish is not None
    here = sum(m.here and m.warm_at is not None for m in state.members.values())
    master = state.members.get(state.me)
    if master is None or isinstance(master.where, Away):
        return "the master's own launcher is not connected yet"
    if isinstance(master.readiness, GivenUp):
        return f"the master's pod is given up ({master.readiness.why}); the others wait for a new one"
    if not master.here:
        return "the master is about to leave; the others wait for a new one"
    if not _is_able(state, master):
        return "the master is not warm yet; all others wait for it"
    return f"{here} pods are warm, the smallest allowed group has {_smallest(state)}"


def _smallest(state: CoordinatorState) -> int:
    assert state.wish is not None
    return min((s for s in state.wish.sizes if s >= state.wish.fewest), default=state.wish.fewest)
