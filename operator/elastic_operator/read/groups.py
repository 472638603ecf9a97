"""Pods by a common key, and one object for equal things."""

from __future__ import annotations

from collections.abc import Hashable, Set
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MOST_KINDS = 10_000
"""The most different things of a sort that are remembered."""


def one_of_its_kind(known: dict[K, V], key: K, thing: V) -> V:
    """The first thing with that key. `known` remembers them, and starts over when there are too many."""
    if len(known) > MOST_KINDS:
        known.clear()
    return known.setdefault(key, thing)


class Groups:
    """Pod uids by a key."""

    def __init__(self) -> None:
        self._members: dict[Hashable, set[str]] = {}

    def get(self, key: Hashable) -> Set[str]:
        """All pods with that key."""
        return self._members.get(key, frozenset())

    def add(self, key: Hashable, uid: str) -> None:
        """Put a pod in."""
        self._members.setdefault(key, set()).add(uid)

    def remove(self, key: Hashable, uid: str) -> None:
        """Take a pod out."""
        members = self._members[key]
        members.remove(uid)
        if not members:
            del self._members[key]
