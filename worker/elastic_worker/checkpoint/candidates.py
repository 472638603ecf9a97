"""Decides, from what happened below a path, when a checkpoint may be complete there. Pure; times are monotonic seconds.

A path that names a file is complete as soon as it is closed or moved there. A checkpoint in a folder may be several
files: a model, then, when it has been gathered from all ranks, an optimizer, then the state of the trainer. It is
complete with its marker (107): the one that the job names, else the outermost that is known of what was written here,
by its own name or by that of a file that it follows. Only where none is known it is complete after a quiet while.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath

from elastic_worker.checkpoint import names
from elastic_worker.checkpoint.tree import HERE, FileEvent, Happening

QUIET_SECONDS = 1.0
GATHER_SECONDS = 60.0
"""The longest between two files of a checkpoint; what was written before is a file that no marker follows."""
LOOK_SECONDS = 0.1
"""Interval at which a checkpoint with a marker is looked at until its other files are closed."""


class Candidates:
    """Files that may make up a complete checkpoint, in the order in which they were written.

    `marker` is the job's own, a file's name with `*` and `?` as in a shell; "" for those that are known.
    """

    def __init__(self, marker: str = "") -> None:
        self._own = marker
        self._known: set[str] = set()
        self._written: dict[PurePath, None] = {}
        self._ends: set[PurePath] = set()
        self._open_parts: set[PurePath] = set()
        self._changed_at = self._not_before = 0.0

    @property
    def at_once(self) -> bool:
        """Whether nothing more is to follow what was written."""
        return bool(self._ends) or HERE in self._written

    @property
    def is_marked(self) -> bool:
        """Whether a marker says so."""
        return bool(self._ends)

    def unfinished(self, now: float) -> bool:
        """Whether a checkpoint is under way: something was just written, and more is to follow or to be looked at.

        What follows parts of torch.distributed.checkpoint is another pod's `.metadata`, which may never be seen here.
        """
        since = now - self._changed_at
        if self.at_once or self._makes_one():
            return since < GATHER_SECONDS
        return bool(self._open_parts) and since < QUIET_SECONDS

    def learn(self, lay_there: Iterable[Happening]) -> None:
        """Note the markers that were written before the watch began."""
        self._known |= {names.marker(happening.below) for happening in lay_there} - {""}

    def note(self, happenings: Sequence[Happening], now: float, *, is_folder: bool) -> None:
        """Note an event."""
        for happening in happenings:
            if not is_folder:
                self._note_file(happening, now)
            elif self._is_own(happening.below) or not names.is_log(happening.below):
                self._note_below(happening, now)

    def due_at(self) -> float | None:
        """When to look next; None if there is nothing to look at."""
        if self.at_once:
            return self._not_before
        awaits = self._own or self._open_parts or self._known - {names.DCP_METADATA}
        return None if awaits or not self._makes_one() else self._changed_at + QUIET_SECONDS

    def take(self) -> list[PurePath]:
        """Take out the files to look at, the newest last."""
        taken = [below for below in self._written if below not in self._ends] + list(self._ends)
        self._ends.clear()
        self._written.clear()
        self._open_parts.clear()
        return taken

    def postpone(self, now: float) -> None:
        """Restart the quiet time and look at a marker again soon: a file is still being written."""
        self._changed_at, self._not_before = now, now + LOOK_SECONDS

    def _note_file(self, happening: Happening, now: float) -> None:
        if happening.below != HERE:
            return
        self._written.pop(HERE, None)
        self._changed_at = now
        if happening.deed is FileEvent.WRITTEN:
            self._written[HERE] = None

    def _note_below(self, happening: Happening, now: float) -> None:
        below = happening.below
        if happening.deed is FileEvent.GONE:
            self._forget(below)
            return
        self._changed_at = now
        if happening.deed is FileEvent.BEGUN or below == HERE:
            return
        if self._is_own(below) and not names.is_temporary(below.parent):
            self._ends.add(below)
        elif not names.is_temporary(below):
            self._note_written(below)

    def _note_written(self, below: PurePath) -> None:
        marker = names.marker(below)
        self._known |= {marker, names.announced(below)} - {""}
        if marker and not self._own and marker == min(self._known, key=names.MARKERS.index):
            self._ends.add(below)
        elif names.is_part(below):
            self._open_parts.add(below.parent)
            return
        elif below.name == names.DCP_METADATA:
            self._open_parts.discard(below.parent)
        self._written.pop(below, None)
        self._written[below] = None

    def _is_own(self, below: PurePath) -> bool:
        return bool(self._own) and fnmatchcase(below.name, self._own)

    def _forget(self, gone: PurePath) -> None:
        for kept in [below for below in self._written if _is_or_has(gone, below)]:
            del self._written[kept]
        self._ends = {below for below in self._ends if not _is_or_has(gone, below)}
        self._open_parts = {folder for folder in self._open_parts if not _is_or_has(gone, folder)}

    def _makes_one(self) -> bool:
        return any(not names.is_description(below) for below in self._written)


def _is_or_has(folder: PurePath, below: PurePath) -> bool:
    return below == folder or folder in below.parents
