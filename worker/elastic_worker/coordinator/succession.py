"""Tells the masters of one job apart without a network between them: by a note beside the checkpoint.

A master that is cut off together with most of its group trains on, and after a while the operator creates another one.
They can do harm only if both reach the same storage. So each master writes the number of its epoch there before it
begins, and an earlier master finds a later one's number. The first master creates the file and later ones write into it
(109): NFS may take a minute to notice that a name exists, but asks the server whenever an existing file is opened.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
GIVE_WAY_SECONDS = 3.0
"""How long a later master waits after its start. By then an earlier one has read the note and ended its processes."""


class Succession:
    """The notes of one job's masters. Each method blocks as long as the storage does."""

    def __init__(self, checkpoint_path: str, *, job_uid: str, epoch: int) -> None:
        """`checkpoint_path` is a file or a folder, which need not exist yet; "" if none is known."""
        self.epoch = epoch
        self._folders: list[Path] = []
        self._name = f".elastic-master-{job_uid}.lock"
        self._problems: set[Path] = set()
        self.add(checkpoint_path)

    def add(self, checkpoint_path: str) -> None:
        """Add another path to which this job writes checkpoints."""
        path = Path(checkpoint_path)
        folders = [path, path.parent] if checkpoint_path else []
        self._folders += [folder for folder in folders if folder not in self._folders]

    @property
    def is_known(self) -> bool:
        """Whether any path for notes is known."""
        return bool(self._folders)

    def look(self) -> int:
        """Return the latest epoch of any master; write this master's into folders that have none or an earlier one."""
        newest = self.epoch
        for folder in self._shared():
            theirs = _read(folder / self._name)
            newest = max(newest, theirs)
            if theirs < self.epoch:
                self._leave(folder)
        return newest

    def forget(self) -> None:
        """Remove this master's notes, since the job is over."""
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
        """Return the folders that exist. A container's root is left out, since no other container sees it."""
        return [folder for folder in self._folders if folder != Path("/") and _is_there(folder)]


def _write(file: Path, note: bytes) -> None:
    """Overwrite the note in one write of the same length, so that no reader sees half of it. Raises OSError."""
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
