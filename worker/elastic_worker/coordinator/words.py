"""Changes in words: pods that leave, pods that have to wait, pods that join."""

from __future__ import annotations

from elastic_worker.coordinator.choose import is_wanted
from elastic_worker.coordinator.member import Member
from elastic_worker.coordinator.model import Pod
from elastic_worker.coordinator.state import Board


def what_changes(board: Board, going: list[Pod], coming: list[Pod]) -> str:
    """A sentence without its end, for lists of which not both are empty."""
    members = board.members_of(going)
    leaving = [m.pod for m in members if not _stays(board, m)]
    waiting = [m.pod for m in members if _stays(board, m)]
    parts = (
        _named(leaving, "leaves", "leave"),
        _named(waiting, "has to wait", "have to wait"),
        _named(coming, "joins", "join"),
    )
    return " and ".join(part for part in parts if part)


def _stays(board: Board, member: Member) -> bool:
    return member.here and is_wanted(board, member.pod.uid)


def _named(pods: list[Pod], one: str, many: str) -> str:
    if not pods:
        return ""
    return f"{names(pods)} {one if len(pods) == 1 else many}"


def names(pods: list[Pod]) -> str:
    """Some of them by name, the others by number."""
    return ", ".join(pod.name for pod in pods[:3]) + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")
