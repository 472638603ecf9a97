"""Pods by a common key."""

from __future__ import annotations

from collections.abc import Hashable, Set


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
