"""The memory of one pass, so that thousands of equivalent entries are not examined one by one (38).

The answer "N pods do not fit" holds longer than other answers: on the board until room is freed, for preemption until
the next round. Within a round, preemption hardly ever gets easier; if it does, the next round finds the room.

    name                        valid while                     voided by                         undone by
    PassState.answers           the state is the same           any change; other fair shares     undoing the change
    NodeBoard: KnownInfeasible  no room is freed                a load that goes or is renewed    undoing the change
    PassState.infeasible        the round, or a gang's turn     the next round, the turn's end     -
    PassState.options           the round                       an undone preemption; on one      -
                                                                node, a preemption there; lower
                                                                usage of the preemptor's
                                                                account (189)

Where the last column says so, undoing a change brings back the answers of the state before the change. For this
purpose each change replaces the `KnownInfeasible` with a new object, and the journal has the old one.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum

from elastic_operator.plan.allocation.journal import Journal


class Question(StrEnum):
    """The questions with an answer that equivalent entries share, while the state is the same."""

    REFUSED = "is the minimum refused in the round of that right?"
    """Also of a gang: the minima of all its pods."""
    CANNOT_GROW = "is there no room for the pods of the next size, even by preemption?"
    PREEMPTIBLE_GPUS = "how many GPUs of the team can be preempted for a minimum?"
    ANY_PREEMPTIBLE = "can anything of the team be preempted for a minimum?"
    REQUESTED_GPUS = "for how many GPUs do jobs of at least that priority request nodes?"


class PassMemo:
    """Answers by question and key: a number, or that something holds.

    An answer is void once the state has changed, and holds again once the change is undone.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[tuple[Question, Hashable], tuple[int, int]] = {}

    def get(self, question: Question, key: Hashable) -> int | None:
        """The answer that still holds; None if there is none."""
        known = self._known.get((question, key))
        return known[1] if known is not None and known[0] == self._journal.revision else None

    def put(self, question: Question, key: Hashable, answer: int = True) -> None:
        """Remember the answer, which was found in the present state."""
        self._known[question, key] = self._journal.revision, answer


class KnownInfeasible:
    """The smallest number of pods that did not fit, and single numbers of pods that are refused, by key."""

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
        """Remember that exactly `count` pods are refused: other numbers are examined, because the message names the
        number.
        """
        self._refused.add((key, count))

    def copy(self) -> KnownInfeasible:
        other = KnownInfeasible()
        other._fewest, other._refused = dict(self._fewest), set(self._refused)
        return other
