"""Lets the masters of one job know of each other where no network leads from one to the other: beside the checkpoint.

A master that is cut off together with most of its group trains on, and after a while the operator makes another one.
Only where both reach the same storage can they do harm, so there each leaves the number of its epoch before it begins,
and an earlier one finds that of a later one. The first makes the file and the later ones write into it (109): NFS keeps
for up to a minute that a name is not there, but asks the server for a file that is there each time it is opened.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
GIVE_WAY_SECONDS = 3.0
"""From its start on a later master waits for so long: an earlier one has looked, and its processes have ended."""


class Succession:
    """The notes of one job's masters. All of it may block as long as the storage does."""

    def __init__(self, checkpoint_path: str, *, job_uid: str, epoch: int) -> None:
        """`checkpoint_path` is a file or a folder, which need not be there yet; "" where none is known."""
        self.epoch = epoch
        self._folders: list[Path] = []
        self._name = f".elastic-master-{job_uid}.lock"
        self._problems: set[Path] = set()
        self.add(checkpoint_path)

    def add(self, checkpoint_path: str) -> None:
        """Another place where this job writes checkpoints."""
        path = Path(checkpoint_path)
        here = [path, path.parent] if checkpoint_path else []
        self._folders += [folder for folder in here if folder not in self._folders]

    @property
    def is_known(self) -> bool:
        """Whether there is a place for notes."""
        return bool(self._folders)

    def look(self) -> int:
        """The latest epoch of any master; where none has left it, or an earlier one has, leave the own one."""
        newest = self.epoch
        for folder in self._shared():
            theirs = _read(folder / self._name)
            newest = max(newest, theirs)
            if theirs < self.epoch:
                self._leave(folder)
        return newest

    def forget(self) -> None:
        """The job is over: take the own notes away."""
        for file in (folder / self._name for folder in self._shared()):
            if _read(file) == self.epoch:
                try:
                    file.unlink(missing_ok=True)
                except OSError as error:
                    log.warning("%s stays: %s", file, error)

    def _leave(self, folder: Path) -> None:
        file = folder / self._name
        try:
            _write(file, f"{self.epoch:>12}\n".encode())
        except OSError as error:
            if folder not in self._problems:
                self._problems.add(folder)
                log.warning("an earlier master that is cut off will not learn of this one: %s", error)

    def _shared(self) -> list[Path]:
        """Of the folders that are there; a container's root is its own."""
        return [folder for folder in self._folders if folder != Path("/") and _is_there(folder)]


def _write(file: Path, note: bytes) -> None:
    """In one write over what stands there, which is as long, so that nobody reads half a note. Raises OSError."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, note)
        os.ftruncate(descriptor, len(note))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_there(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except OSError:
        return False


def _read(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0
