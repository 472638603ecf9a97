"""Finds complete checkpoints: the part of the watch that touches the mount, so it runs in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath

from elastic_worker.checkpoint import names
from elastic_worker.checkpoint.candidates import Candidates
from elastic_worker.checkpoint.inotify import Notice
from elastic_worker.checkpoint.integrity import Fingerprint, is_whole, print_of
from elastic_worker.checkpoint.tree import HERE, Tree
from elastic_worker.checkpoint.writers import open_for_writing


class Finder:
    """Watches from the moment it is made. `find` is for one thread at a time; the rest may be asked beside it.

    `marker`: see `Candidates`. Raises OSError where the path can be neither watched nor read.
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
        """Monotonic seconds when `find` is to be called even if nothing happens; None: not before."""
        return self._candidates.due_at()

    def read(self) -> tuple[list[Notice], bool]:
        """What to hand to `find`, and whether it may be the end of a checkpoint. Does not touch the mount."""
        notices = self._tree.read()
        return notices, any(self._tree.may_complete(notice, self._ends) for notice in notices)

    def find(self, notices: Sequence[Notice]) -> bool:
        """Whether a checkpoint has just become complete."""
        happenings = self._tree.happenings(notices)
        is_folder = self._tree.is_folder()
        self._candidates.note(happenings, time.monotonic(), is_folder=is_folder)
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
        """Whether a checkpoint is under way, be it that no file of it is open just now."""
        return self._candidates.unfinished(time.monotonic())

    def verify(self) -> bool:
        """Whether the last candidate still is as it was found, to its end."""
        return self._newest is not None and _is_good(*self._newest)

    def close(self) -> None:
        """Stop watching."""
        self._tree.close()

    def _judge(self, written: list[PurePath]) -> bool:
        """Whether the newest of these is whole, and is not just an empty file; only the job's own marker may be empty.

        A script that is killed between opening one and writing it leaves it empty.
        """
        newest = self._tree.root() / written[-1]
        found = print_of(newest)
        is_alone = len(written) == 1 and not self.marked
        if found is None or (found.size == 0 and (is_alone or names.marker(written[-1]))):
            self._newest = None
            return False
        # The name itself may be open once more; then it will also be closed once more.
        if written[-1] == HERE and newest in open_for_writing(self._writers()):
            return False
        self._newest = (newest, found)
        return _is_good(newest, found)


def _is_good(path: Path, found: Fingerprint) -> bool:
    now = print_of(path)
    if now is None:
        return False
    try:
        whole = is_whole(path)
    except FileNotFoundError:
        return False
    return now == found if whole is None else whole


def _belongs_to_folder(path: Path, root: Path) -> bool:
    return root in path.parents and not names.is_log(path.relative_to(root))


def _belongs_to_file(path: Path, root: Path) -> bool:
    """The file itself, or one beside it that is likely to be given its name."""
    return path.parent == root.parent and root.stem in path.name
