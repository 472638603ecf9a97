"""Finds complete checkpoints. This part of the watch reads from the mount, so it runs in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath

from elastic_worker.checkpoint import names
from elastic_worker.checkpoint.candidates import Candidates
from elastic_worker.checkpoint.inotify import Notice
from elastic_worker.checkpoint.integrity import Fingerprint, fingerprint_of, is_whole
from elastic_worker.checkpoint.tree import HERE, Tree
from elastic_worker.checkpoint.writers import open_for_writing


class Finder:
    """Watches the path from its construction on. Only `find` must not run in two threads at the same time.

    `marker`: see `Candidates`. Raises OSError if the path can be neither watched nor read.
    """

    def __init__(self, path: Path, writers: Callable[[], Iterable[int]], *, marker: str = "") -> None:
        self._tree = Tree(path)
        self._writers = writers
        self._candidates = Candidates(marker)
        self._ends = (*names.MARKERS, marker)
        self.marked = False
        """Whether a marker ended the last complete checkpoint."""
        self._newest: tuple[Path, Fingerprint] | None = None
        try:
            self._candidates.learn(self._tree.watch())  # files that exist already are not being written
        except OSError:
            self._tree.close()
            raise

    @property
    def descriptor(self) -> int:
        """Readable when there is something to `read`."""
        return self._tree.descriptor

    def due_at(self) -> float | None:
        """When to call `find` even if nothing happens, in monotonic seconds; None: only when something happens."""
        return self._candidates.due_at()

    def read(self) -> tuple[list[Notice], bool]:
        """The notices for `find`, and whether they may be the end of a checkpoint. Does not touch the mount."""
        notices = self._tree.read()
        return notices, any(self._tree.may_complete(notice, self._ends) for notice in notices)

    def find(self, notices: Sequence[Notice]) -> bool:
        """Whether a checkpoint has just become complete."""
        events = self._tree.events(notices)
        is_folder = self._tree.is_folder()
        self._candidates.note(events, time.monotonic(), is_folder=is_folder)
        due_at = self._candidates.due_at()
        if due_at is None or time.monotonic() < due_at:
            return False
        if is_folder and self.being_written():
            self._candidates.postpone(time.monotonic())
            return False
        self.marked = self._candidates.is_marked
        return self._judge(self._candidates.take())

    def being_written(self) -> bool:
        """Whether one of the writers has a file of the checkpoint open for writing."""
        root, is_folder = self._tree.root(), self._tree.is_folder()
        belongs = _belongs_to_folder if is_folder else _belongs_to_file
        return any(belongs(path, root) for path in open_for_writing(self._writers()))

    def unfinished(self) -> bool:
        """Whether a checkpoint is under way, even if no file of it is open now."""
        return self._candidates.unfinished(time.monotonic())

    def verify(self) -> bool:
        """Whether the last candidate is unchanged since it was found, and still complete."""
        return self._newest is not None and _is_good(*self._newest)

    def close(self) -> None:
        """Stop watching."""
        self._tree.close()

    def _judge(self, written: list[PurePath]) -> bool:
        """Whether the newest of these files is complete and not empty. Only the job's own marker may be empty.

        A script that is killed between opening a file and writing it leaves an empty one.
        """
        newest = self._tree.root() / written[-1]
        fingerprint = fingerprint_of(newest)
        is_alone = len(written) == 1 and not self.marked
        if fingerprint is None or (fingerprint.size == 0 and (is_alone or names.marker(written[-1]))):
            self._newest = None
            return False
        # The watched file may have been opened again; it will then be closed again, too.
        if written[-1] == HERE and newest in open_for_writing(self._writers()):
            return False
        self._newest = (newest, fingerprint)
        return _is_good(newest, fingerprint)


def _is_good(path: Path, fingerprint: Fingerprint) -> bool:
    now = fingerprint_of(path)
    if now is None:
        return False
    try:
        whole = is_whole(path)
    except FileNotFoundError:
        return False
    return now == fingerprint if whole is None else whole


def _belongs_to_folder(path: Path, root: Path) -> bool:
    return root in path.parents and not names.is_log(path.relative_to(root))


def _belongs_to_file(path: Path, root: Path) -> bool:
    """Whether the path is the watched file, or a file beside it that will probably be renamed to it."""
    return path.parent == root.parent and root.stem in path.name
