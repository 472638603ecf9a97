"""What one pass remembers, so that thousands of entries that are `alike` are not asked about one by one (38).

An answer holds as long as nothing changes (`PassMemo`). That so many pods do not fit holds longer (`TooMany`): until
room is freed on the board; for jobs that grow until the end of the round; for minima until the rounds are repeated.
Taking mostly gets harder meanwhile. Where it got easier, the rounds are repeated, because something has changed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from elastic_operator.plan.allocation.journal import Journal

Answer = TypeVar("Answer")


class PassMemo(Generic[Answer]):
    """Answers by key. Each is void once the state has changed, and holds again once that is undone."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[Hashable, tuple[int, Answer]] = {}

    def get(self, key: Hashable) -> Answer | None:
        """The answer that still holds; None if there is none."""
        known = self._known.get(key)
        return known[1] if known is not None and known[0] == self._journal.version else None

    def put(self, key: Hashable, answer: Answer) -> None:
        """Remember the answer, which was found in the present state."""
        self._known[key] = self._journal.version, answer


class TooMany:
    """For each key, the fewest pods that were found not to fit."""

    def __init__(self) -> None:
        self._fewest: dict[Hashable, int] = {}

    def covers(self, key: Hashable, count: int) -> bool:
        """Whether `count` pods are known not to fit, because no more of them did not."""
        return count >= self._fewest.get(key, count + 1)

    def add(self, key: Hashable, count: int) -> None:
        """Remember that `count` pods do not fit."""
        self._fewest[key] = min(count, self._fewest.get(key, count))

    def copy(self) -> TooMany:
        """A copy that goes on separately."""
        other = TooMany()
        other._fewest = dict(self._fewest)
        return other
