"""Keeps watches on all folders that matter for one path, and turns the kernel's notices into changes of its files.

The path may not exist yet, may be replaced as a whole, and may be a symlink. Without the path, the nearest existing
folder is watched. For a symlink, both its own folder and its target are watched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from elastic_worker.checkpoint import inotify


class FileChange(Enum):
    """The kinds of change of a file."""

    WRITTEN = "written"
    """Closed after writing, or put there by a rename or a link."""
    BEGUN = "begun"
    GONE = "gone"
    """Renamed or deleted. For a folder, so is everything below it."""


@dataclass(frozen=True)
class PathEvent:
    """A change of one file. `below` is its path relative to the watched path, `.` for the watched path itself."""

    below: PurePath
    change: FileChange


HERE = PurePath()


class Tree:
    """The watched folders of one path. Use from one thread at a time. Raises OSError if nothing can be watched."""

    def __init__(self, path: Path) -> None:
        # Not resolve(): a symlink must stay one.
        self.path = Path.cwd() / path
        self._inotify = inotify.Inotify()
        self._folders: dict[int, Path] = {}
        self._root_name = self.path.name

    @property
    def descriptor(self) -> int:
        """A file descriptor that is readable when something has happened."""
        return self._inotify.descriptor

    def is_folder(self) -> bool:
        """Whether the path is a folder. One that does not exist yet counts as a folder if it has no suffix."""
        return self.path.is_dir() or (not self.path.exists() and not self.path.suffix)

    def root(self) -> Path:
        """The path of the files, without symlinks."""
        return self.path.resolve()

    def close(self) -> None:
        """Stop watching."""
        self._inotify.close()

    def watch(self) -> list[PathEvent]:
        """Watch the present folders. Returns the files of folders that were not watched before, the oldest first."""
        watched = set(self._folders)
        self._root_name = self.root().name
        while True:
            self._folders = self._add_all()
            # A folder made between looking and watching has left no notice.
            if set(self._wanted()) <= set(self._folders.values()):
                break
        for number in watched - set(self._folders):
            self._inotify.remove(number)
        return self._all_written(folder for number, folder in self._folders.items() if number not in watched)

    def _add_all(self) -> dict[int, Path]:
        folders = {}
        for folder in self._wanted():
            with suppress(FileNotFoundError, NotADirectoryError):  # removed meanwhile
                folders[self._inotify.add(folder)] = folder
        return folders

    def read(self) -> list[inotify.Notice]:
        """Read the kernel's events since the last call. Does not touch the files, so it never blocks."""
        return self._inotify.read()

    def may_complete(self, notice: inotify.Notice, ends: Iterable[str]) -> bool:
        """Whether the notice's name fits one of `ends` (`*` and `?` as in a shell), so that a checkpoint may end here.

        Does not touch the files.
        """
        if not notice.name or not notice.has(inotify.CLOSE_WRITE | inotify.MOVED_TO):
            return False
        is_path = notice.name in (self.path.name, self._root_name)
        return is_path or any(fnmatchcase(notice.name, end) for end in ends)

    def events(self, notices: Sequence[inotify.Notice]) -> list[PathEvent]:
        """The changes below the path from these notices. Renews the watches if folders appeared or disappeared."""
        events: list[PathEvent] = []
        renew = False
        for notice in notices:
            renew = renew or self._changes_folders(notice)
            events.extend(self._meaning(notice))
            if notice.has(inotify.OVERFLOW):
                events.extend(self._all_written(self._folders.values())[-1:])
        return events + (self.watch() if renew else [])

    def _wanted(self) -> Iterator[Path]:
        """The folders to watch: those above the path that may be replaced, and all below it."""
        existing = self.path.parent
        while not existing.is_dir() and existing != existing.parent:
            existing = existing.parent
        yield existing
        root = self.root()
        if root.is_dir():
            for folder, _, _ in os.walk(root):
                yield Path(folder)
        elif root.parent.is_dir():
            yield root.parent

    def _all_written(self, folders: Iterable[Path]) -> list[PathEvent]:
        """The files of these folders that belong to the path, as if just written; the oldest first."""
        entries = [entry for folder in folders for entry in _files_in(folder)]
        belows = (self._below(entry) for entry in sorted(entries, key=_changed))
        return [PathEvent(below, FileChange.WRITTEN) for below in belows if below is not None]

    def _changes_folders(self, notice: inotify.Notice) -> bool:
        if notice.has(inotify.OVERFLOW | inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.IGNORED):
            return True
        folder = self._folders.get(notice.watch)
        is_link = folder is not None and (folder / notice.name).is_symlink()
        return notice.has(inotify.IS_FOLDER) or is_link or (notice.name == self.path.name)

    def _meaning(self, notice: inotify.Notice) -> Iterator[PathEvent]:
        folder = self._folders.get(notice.watch)
        if folder is None or not notice.name:
            return
        entry = folder / notice.name
        below = self._below(entry)
        if below is None:
            return
        if notice.has(inotify.MOVED_FROM | inotify.DELETE):
            yield PathEvent(below, FileChange.GONE)
        elif notice.has(inotify.CLOSE_WRITE | inotify.MOVED_TO):
            yield from self._arrived(entry, below)
        elif notice.has(inotify.CREATE):
            # A link is complete when it is made, as it is not written to afterwards.
            yield PathEvent(below, FileChange.WRITTEN if _is_link(entry) else FileChange.BEGUN)

    def _arrived(self, entry: Path, below: PurePath) -> Iterator[PathEvent]:
        if not entry.is_dir():
            yield PathEvent(below, FileChange.WRITTEN)
        else:
            yield from self._all_written(Path(folder) for folder, _, _ in os.walk(entry))

    def _below(self, entry: Path) -> PurePath | None:
        """The entry's path relative to the watched path or to its symlink's target; None outside of both."""
        for base in (self.path, self.root()):
            if entry == base:
                return HERE
            if base in entry.parents:
                return entry.relative_to(base)
        return None


def _is_link(entry: Path) -> bool:
    if entry.is_symlink():
        return entry.is_file()
    try:
        return entry.stat().st_nlink > 1 and not entry.is_dir()
    except OSError:
        return False


def _files_in(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if entry.is_file()]
    except FileNotFoundError:
        return []


def _changed(entry: Path) -> float:
    try:
        return entry.stat().st_mtime
    except OSError:
        return 0.0
