"""Decides, from changes of files below a path, when a checkpoint may be complete. Pure; times are monotonic seconds.

A path that names a file is complete as soon as the file is closed or moved there. A checkpoint in a folder may have
several files: a model, then an optimizer, once it is gathered from all ranks, then the trainer's state. It is complete
with its marker (107). The marker is the one that the job names. Otherwise it is the outermost known one that was
written here or is expected after a file written here. Without a known marker a checkpoint is complete after
QUIET_SECONDS.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath

from elastic_worker.checkpoint import names
from elastic_worker.checkpoint.tree import HERE, FileChange, PathEvent

QUIET_SECONDS = 1.0
GATHER_SECONDS = 60.0
"""The longest time between two files of a checkpoint. No marker follows a file that is older than that."""
LOOK_SECONDS = 0.1
"""Interval between checks of a checkpoint that has its marker, until its other files are closed."""


class Candidates:
    """Files that may make up a complete checkpoint, in the order in which they were written.

    `marker` is the job's own: a file's name with `*` and `?` as in a shell, "" for the known markers.
    """

    def __init__(self, marker: str = "") -> None:
        self._own_marker = marker
        self._known_markers: set[str] = set()
        self._written: dict[PurePath, None] = {}
        self._ends: dict[PurePath, None] = {}
        self._open_parts: set[PurePath] = set()
        self._changed_at = self._not_before = 0.0

    @property
    def at_once(self) -> bool:
        """Whether no further file is expected."""
        return bool(self._ends) or HERE in self._written

    @property
    def is_marked(self) -> bool:
        """Whether a marker was written."""
        return bool(self._ends)

    def unfinished(self, now: float) -> bool:
        """Whether a checkpoint is under way: a file was just written, and more files are expected or to be checked.

        The parts of torch.distributed.checkpoint are followed by another pod's `.metadata`, which this pod may not see.
        """
        since = now - self._changed_at
        if self.at_once or self._makes_one():
            return since < GATHER_SECONDS
        return bool(self._open_parts) and since < QUIET_SECONDS

    def learn(self, existing: Iterable[PathEvent]) -> None:
        """Note the markers that were written before the watch began."""
        self._known_markers |= {names.marker(event.below) for event in existing} - {""}

    def note(self, events: Sequence[PathEvent], now: float, *, is_folder: bool) -> None:
        """Note changes at time `now`. `is_folder`: whether the watched path is a folder."""
        for event in events:
            if not is_folder:
                self._note_file(event, now)
            elif self._is_own(event.below) or not names.is_log(event.below):
                self._note_below(event, now)

    def due_at(self) -> float | None:
        """When to check next, in monotonic seconds; None if there is nothing to check."""
        if self.at_once:
            return self._not_before
        awaits = self._own_marker or self._open_parts or self._known_markers - {names.DCP_METADATA}
        return None if awaits or not self._makes_one() else self._changed_at + QUIET_SECONDS

    def take(self) -> list[PurePath]:
        """Remove the files to check, and return them, the newest last."""
        taken = [*(below for below in self._written if below not in self._ends), *self._ends]
        self._ends.clear()
        self._written.clear()
        self._open_parts.clear()
        return taken

    def postpone(self, now: float) -> None:
        """Check again later, as a file is still being written: restart the quiet time, and check a marker soon."""
        self._changed_at, self._not_before = now, now + LOOK_SECONDS

    def _note_file(self, event: PathEvent, now: float) -> None:
        if event.below != HERE:
            return
        self._written.pop(HERE, None)
        self._changed_at = now
        if event.change is FileChange.WRITTEN:
            self._written[HERE] = None

    def _note_below(self, event: PathEvent, now: float) -> None:
        below = event.below
        if event.change is FileChange.GONE:
            self._forget(below)
            return
        self._changed_at = now
        if event.change is FileChange.BEGUN or below == HERE:
            return
        if self._is_own(below) and not names.is_temporary(below.parent):
            _put_last(self._ends, below)
        elif not names.is_temporary(below):
            self._note_written(below)

    def _note_written(self, below: PurePath) -> None:
        marker = names.marker(below)
        self._known_markers |= {marker, names.announced(below)} - {""}
        if marker and not self._own_marker and marker == min(self._known_markers, key=names.MARKERS.index):
            _put_last(self._ends, below)
        elif names.is_part(below):
            self._open_parts.add(below.parent)
            return
        elif below.name == names.DCP_METADATA:
            self._open_parts.discard(below.parent)
        _put_last(self._written, below)

    def _is_own(self, below: PurePath) -> bool:
        return bool(self._own_marker) and fnmatchcase(below.name, self._own_marker)

    def _forget(self, ended: PurePath) -> None:
        for files in (self._written, self._ends):
            for kept in [below for below in files if _is_or_has(ended, below)]:
                del files[kept]
        self._open_parts = {folder for folder in self._open_parts if not _is_or_has(ended, folder)}

    def _makes_one(self) -> bool:
        return any(not names.is_description(below) for below in self._written)


def _put_last(files: dict[PurePath, None], below: PurePath) -> None:
    files.pop(below, None)
    files[below] = None


def _is_or_has(folder: PurePath, below: PurePath) -> bool:
    return below == folder or folder in below.parents
