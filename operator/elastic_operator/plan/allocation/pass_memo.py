"""The memory of one pass, so that thousands of equivalent entries are not examined one by one (38).

An answer holds as long as nothing changes (`PassMemo`). "N pods do not fit" (`KnownInfeasible`) holds longer: on the
board until room is freed, for preemption until the next round (`RoundMemory`), because within a round preemption only
gets harder.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappush
from typing import Generic, TypeVar

from elastic_operator.plan.allocation.journal import Journal

Answer = TypeVar("Answer")


class PassMemo(Generic[Answer]):
    """Answers by key. An answer is void once the state has changed, and holds again once the change is undone."""

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


class KnownInfeasible:
    """By key, the smallest number of pods that did not fit, and single numbers of pods that are refused."""

    def __init__(self) -> None:
        self._fewest: dict[Hashable, int] = {}
        self._refused: set[tuple[Hashable, int]] = set()

    def covers(self, key: Hashable, count: int) -> bool:
        """Whether `count` pods are known not to fit: that many or fewer did not, or exactly that many were refused."""
        return count >= self._fewest.get(key, count + 1) or (key, count) in self._refused

    def add(self, key: Hashable, count: int) -> None:
        """Remember that `count` pods do not fit."""
        self._fewest[key] = min(count, self._fewest.get(key, count))

    def refuse(self, key: Hashable, count: int) -> None:
        """Remember that exactly `count` pods are refused. Other numbers are examined anew, because the message names
        the number.
        """
        self._refused.add((key, count))

    def copy(self) -> KnownInfeasible:
        """An independent copy."""
        other = KnownInfeasible()
        other._fewest, other._refused = dict(self._fewest), set(self._refused)
        return other


class RoundMemory:
    """The memory of one round of minima and of the growth after it. The next round begins with a new one.

    `refused`: the keys of entries that were tried for their minimum and got nothing. `infeasible`: the numbers of
    workers that could not be placed, even by preemption. `options`: by preemptor, a heap of prices and nodes. While
    pods are preempted, an option only gets dearer, except on the nodes that these pods leave. So options are kept for
    the round (44), or until a preemption is undone.
    """

    def __init__(self, journal: Journal) -> None:
        self.refused = PassMemo[bool](journal)
        self.infeasible = KnownInfeasible()
        self.options: dict[Hashable, list[tuple[tuple[float, ...], int]]] = {}

    def node_got_room(self, node: int) -> None:
        """Options on that node may be cheaper now, so they are examined next."""
        for found in self.options.values():
            heappush(found, ((), node))
