"""Describes changes in words, for users: pods leave, have to wait, or join."""

from __future__ import annotations

from elastic_worker.coordinator.choose import is_wanted
from elastic_worker.coordinator.member import Member
from elastic_worker.coordinator.model import Pod
from elastic_worker.coordinator.state import CoordinatorState


def describe_change(state: CoordinatorState, going: list[Pod], coming: list[Pod]) -> str:
    """Return a sentence without its end. One of the two lists may be empty."""
    members = state.members_of(going)
    leaving = [m.pod for m in members if not _stays(state, m)]
    waiting = [m.pod for m in members if _stays(state, m)]
    parts = (
        _named(leaving, "leaves", "leave"),
        _named(waiting, "has to wait", "have to wait"),
        _named(coming, "joins", "join"),
    )
    return " and ".join(part for part in parts if part)


def _stays(state: CoordinatorState, member: Member) -> bool:
    return member.is_available and is_wanted(state, member.pod.uid)


def _named(pods: list[Pod], singular: str, plural: str) -> str:
    if not pods:
        return ""
    return f"{names(pods)} {singular if len(pods) == 1 else plural}"


def names(pods: list[Pod]) -> str:
    """Return the names of the first three pods, and how many others there are."""
    return ", ".join(pod.name for pod in pods[:3]) + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")
