"""Which pods make the next group, and whether they may: pure functions of the board."""

from __future__ import annotations

from elastic_worker.coordinator.model import Board, Generation, Member, Pod

NEWCOMER_SECONDS = 10.0
"""Further pods that are expected are waited for at most so long after the first newcomer is warm."""
RECONNECT_SECONDS = 1.0
"""A member whose connection broke may come back within this time, while nothing else speaks of its end."""


def chosen(board: Board) -> tuple[Pod, ...]:
    """The pods of the best group now, in the order of their ranks; none if there is no allowed size.

    The master's processes come first, survivors keep their order, newcomers follow by index.
    """
    return in_order(board, [m for m in board.members.values() if _is_able(board, m)])


def in_order(board: Board, able: list[Member]) -> tuple[Pod, ...]:
    """As many of them as may train, in the order of their ranks; none without this master, or if they are too few."""
    before = {pod.uid: place for place, pod in enumerate(board.group.pods)} if board.group else {}
    if board.wish is None or not any(m.pod.uid == board.me for m in able):
        return ()
    able.sort(key=lambda m: (m.pod.uid != board.me, before.get(m.pod.uid, len(before)), m.pod.index, m.pod.uid))
    return tuple(m.pod for m in able[: board.wish.largest(len(able))])


def is_wanted(board: Board, uid: str) -> bool:
    """Whether the wish names the pod; the coordinator's own takes part in any case."""
    return board.wish is not None and (uid in board.wish.members or uid == board.me)


def _is_able(board: Board, member: Member) -> bool:
    """Here, wanted, and warm; a pod of the last group may start its processes cold."""
    is_warm = member.warm_at is not None or _was_in(board, member.pod.uid)
    return member.here and is_wanted(board, member.pod.uid) and is_warm


def _was_in(board: Board, uid: str) -> bool:
    return board.group is not None and uid in board.group.uids


def expected_newcomers(board: Board) -> list[str]:
    """Uids that the wish names and that could not take part yet: never seen here, or not warm yet."""
    if board.wish is None:
        return []
    return sorted(uid for uid in board.wish.members | {board.me} if _is_awaited(board, uid))


def _is_awaited(board: Board, uid: str) -> bool:
    member = board.member(uid)
    if member is None:
        return True
    return member.here and member.warm_at is None and not _was_in(board, uid)


def patient_until(board: Board) -> float:
    """Until when further newcomers are waited for: some seconds from the first one that is warm."""
    before = board.group.uids if board.group else frozenset()
    newcomers = [m for m in board.members.values() if m.here and m.pod.uid not in before]
    warm = [m.warm_at for m in newcomers if m.warm_at is not None]
    return min(warm, default=board.started) + NEWCOMER_SECONDS


def lost(board: Board, group: Generation, now: float) -> list[Pod]:
    """Pods of the group that are gone: the connection broke, and did not come back in time or something else failed."""
    failing = any(m.failure is not None and m.failure.generation == group.number for m in board.members.values())
    return [pod for pod in group.pods if _is_lost(board.member(pod.uid), failing, now)]


def is_to_blame(board: Board, group: Generation, now: float) -> bool:
    """Whether a failure in the group is the script's, and not that of pods which went."""
    return not (lost(board, group, now) or leaving(board, group))


def leaving(board: Board, group: Generation) -> list[float]:
    """When the processes of those pods of the group end that were asked to go; without pods that left an earlier group.

    A pod stays on the board after it has gone, so that it is known if it comes back.
    """
    members = (board.member(pod.uid) for pod in group.pods)
    return [member.leaving_until for member in members if member is not None and member.leaving_until is not None]


def _is_lost(member: Member | None, failing: bool, now: float) -> bool:
    if member is None or member.given_up:
        return True
    if member.connected:
        return False
    return member.goodbye or failing or now >= member.since + RECONNECT_SECONDS


def reconnects(board: Board) -> float | None:
    """When a member that is away for a moment is given up; None if none is."""
    absent = [m.since + RECONNECT_SECONDS for m in board.members.values() if not m.connected and m.process_generation]
    return min(absent, default=None)


def why_not(board: Board, pods: tuple[Pod, ...]) -> str:
    """Why these pods may not train by themselves; "" if they may.

    Two halves of a cut network must not both train. Pods that said goodbye are no half. A connected pod obeys this
    coordinator, whether it can train or not. A wish newer than the group's is the operator's word. Where no other
    master is made while this one runs, its part of the group is the only one that can train (134).
    """
    group = board.group
    if board.wish is None:
        return "the operator has not said yet who is to take part"
    if not pods:
        return _too_few(board)
    is_newer = group is None or (board.epoch, board.wish.number) > (group.epoch, group.wish)
    if group is None or is_newer or not board.wish.has_successor:
        return ""
    goodbyes: set[str] = {m.pod.uid for m in board.members.values() if m.goodbye or m.leaving_until is not None}
    stay = group.uids - goodbyes
    here = {uid for uid in stay if (member := board.member(uid)) is not None and member.connected}
    if 2 * len(here) > len(stay) or here == stay:
        return ""
    told = f"only {len(here)} of the {len(stay)} pods of generation {group.number} are here, not more than half"
    return f"{told}: the others may be training; it goes on when they return, or when the operator says who takes part"


def _too_few(board: Board) -> str:
    assert board.wish is not None
    here = sum(m.here and m.warm_at is not None for m in board.members.values())
    master = board.member(board.me)
    if master is None or not master.connected:
        return "the master's own launcher is not connected yet"
    if master.given_up:
        return f"the master's pod is given up ({master.given_up}); the others wait for a new one"
    if not master.here:
        return "the master is about to leave; the others wait for a new one"
    if not _is_able(board, master):
        return "the master is not warm yet; all others wait for it"
    return f"{here} pods are warm, the smallest allowed group has {_smallest(board)}"


def _smallest(board: Board) -> int:
    assert board.wish is not None
    return min((s for s in board.wish.sizes if s >= board.wish.fewest), default=board.wish.fewest)
