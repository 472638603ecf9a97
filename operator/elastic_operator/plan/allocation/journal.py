"""The journal of a pass: every change to board, accounts and entries, each with a function that undoes it.

So the allocation can try plans and drop them, and one state serves all passes: each pass first undoes the changes of
the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial


class Journal:
    """The changes that stand, oldest first.

    `moves` counts all changes that were ever made. `revision` is the number of the last change that stands: while it is
    the same, nothing that the journal covers has changed. An undone change brings the revision before it back.
    """

    def __init__(self) -> None:
        self._undo: list[tuple[int, Callable[[], object]]] = []
        self.moves = self.revision = 0

    def do(self, change: Callable[[], object], *, undo: Callable[[], object]) -> None:
        """Make a change, and remember how to undo it."""
        change()
        self._undo.append((self.revision, undo))
        self.moves += 1
        self.revision = self.moves

    def set(self, thing: object, attribute: str, value: object) -> None:
        """Give an attribute of an entry or an account another value; the identical value is no change."""
        before = getattr(thing, attribute)
        if before is value:
            return
        self.do(partial(setattr, thing, attribute, value), undo=partial(setattr, thing, attribute, before))

    def renumber(self) -> None:
        """Give the present state another number, because something has changed that the journal does not cover."""
        self.moves += 1
        self.revision = self.moves

    def mark(self) -> int:
        """The present point, to roll back to. If two marks are equal, all changes between them were undone."""
        return len(self._undo)

    def keep_if(self, succeeded: bool, mark: int) -> bool:
        """Keep the changes since `mark` if the try has succeeded, else undo them. Returns whether it has."""
        if not succeeded:
            self.roll_back(mark)
        return succeeded

    def forget(self) -> None:
        """Forget how to undo the changes, because no further pass uses the state. Each undo function refers to the
        state, so otherwise only a full run of Python's garbage collector would free the two (216).
        """
        self._undo.clear()

    def roll_back(self, mark: int = 0) -> None:
        """Undo every change since `mark`, the latest first; all of them without a mark."""
        while len(self._undo) > mark:
            self.revision, undo = self._undo.pop()
            undo()
