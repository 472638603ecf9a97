"""Decides, from what happened below a path, when a checkpoint may be complete there. Pure; times are monotonic seconds.

A path that names a file is complete as soon as it is closed or moved there. A folder is when the metadata of torch has
been written, which comes last; else when it has been quiet for a while, since a checkpoint may be several files: a
model, then an optimizer, then the state of the trainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from elastic_worker.checkpoint import names
from elastic_worker.checkpoint.tree import HERE, Deed, Happening

QUIET_SECONDS = 1.0


class Candidates:
    """Files that may make up a complete checkpoint, in the order in which they were written."""

    def __init__(self) -> None:
        self._written: dict[PurePath, None] = {}
        self._metadata: set[PurePath] = set()
        self._changed_at = 0.0

    @property
    def at_once(self) -> bool:
        """Whether nothing more is to follow what was written."""
        return bool(self._metadata) or HERE in self._written

    def note(self, happenings: Sequence[Happening], now: float, *, is_folder: bool) -> None:
        """Take in what happened."""
        for happening in happenings:
            if not is_folder:
                self._note_file(happening)
            elif not names.is_log(happening.below):
                self._note_below(happening, now)

    def due_at(self) -> float | None:
        """When there is something to look at; None while there is not."""
        if self.at_once:
            return 0.0
        return self._changed_at + QUIET_SECONDS if self._makes_one() else None

    def take(self) -> list[PurePath]:
        """What is to be looked at; it is forgotten here. The last one is the newest."""
        taken = [below for below in self._written if below not in self._metadata] + list(self._metadata)
        self._metadata.clear()
        self._written.clear()
        return taken

    def postpone(self, now: float) -> None:
        """Count the quiet time from now: somebody still writes."""
        self._changed_at = now

    def _note_file(self, happening: Happening) -> None:
        if happening.below != HERE:
            return
        self._written.pop(HERE, None)
        if happening.deed is Deed.WRITTEN:
            self._written[HERE] = None

    def _note_below(self, happening: Happening, now: float) -> None:
        below = happening.below
        if happening.deed is Deed.GONE:
            self._forget(below)
            return
        self._changed_at = now
        if happening.deed is Deed.BEGUN or names.is_temporary(below) or below == HERE:
            return
        if names.ends_a_checkpoint(below):
            self._metadata.add(below)
        elif not names.is_part(below):
            self._written.pop(below, None)
            self._written[below] = None

    def _forget(self, gone: PurePath) -> None:
        for kept in [below for below in self._written if below == gone or gone in below.parents]:
            del self._written[kept]
        self._metadata = {below for below in self._metadata if below != gone and gone not in below.parents}

    def _makes_one(self) -> bool:
        return any(not names.is_description(below) for below in self._written)
