"""Changes in words: pods that leave, pods that have to wait, pods that join."""

from __future__ import annotations

from elastic_worker.coordinator.choose import is_wanted
from elastic_worker.coordinator.model import Board, Member, Pod


def member(board: Board, pod: Pod) -> Member:
    """The pod as it was last seen; one that was never connected here is not."""
    return board.member(pod.uid) or Member(pod, since=board.started, connected=False)


def what_changes(board: Board, going: list[Pod], coming: list[Pod]) -> str:
    """A sentence without its end, for lists of which not both are empty."""
    leaving = [pod for pod in going if not _stays(board, pod)]
    waiting = [pod for pod in going if _stays(board, pod)]
    parts = (
        _named(leaving, "leaves", "leave"),
        _named(waiting, "has to wait", "have to wait"),
        _named(coming, "joins", "join"),
    )
    return " and ".join(part for part in parts if part)


def _stays(board: Board, pod: Pod) -> bool:
    return is_wanted(board, pod.uid) and member(board, pod).here


def _named(pods: list[Pod], one: str, many: str) -> str:
    if not pods:
        return ""
    return f"{names(pods)} {one if len(pods) == 1 else many}"


def names(pods: list[Pod]) -> str:
    """Some of them by name, the others by number."""
    return ", ".join(pod.name for pod in pods[:3]) + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")
