"""Lets the masters of one job know of each other where no network leads from one to the other: beside the checkpoint.

A master that is cut off together with most of its group trains on, and after a while the operator makes another one.
Only where both reach the same storage can they do harm, so there the later one leaves the number of its epoch before
it begins, and the earlier one finds it. A first master leaves nothing: no file is made while nothing goes wrong.
"""

from __future__ import annotations

import logging
from pathlib import Path

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
GIVE_WAY_SECONDS = 3.0
"""From its start on a later master waits for so long: an earlier one has looked, and its processes have ended."""


class Succession:
    """The notes of one job's masters. All of it may block as long as the storage does."""

    def __init__(self, checkpoint_path: str, *, job_uid: str, epoch: int) -> None:
        """`checkpoint_path` is a file or a folder, which need not be there yet; "" where none is known."""
        path = Path(checkpoint_path)
        self._folders = [path, path.parent] if checkpoint_path else []
        self._name = f".elastic-master-{job_uid}.lock"
        self._epoch = epoch

    @property
    def is_known(self) -> bool:
        """Whether there is a place for notes."""
        return bool(self._folders)

    def note(self) -> None:
        """Leave the epoch, unless it is the first; wherever that is possible."""
        if self._epoch <= 1 or self.newest() >= self._epoch:
            return
        for folder in self._shared():
            self._leave(folder)

    def _leave(self, folder: Path) -> None:
        try:
            unfinished = folder / f"{self._name}.tmp"
            unfinished.write_text(f"{self._epoch}\n")
            unfinished.replace(folder / self._name)
        except OSError as error:
            log.warning("an earlier master that is cut off will not learn of this one: %s", error)

    def newest(self) -> int:
        """The latest epoch that any master has left; 0 if none has."""
        return max((_read(folder / self._name) for folder in self._shared()), default=0)

    def _shared(self) -> list[Path]:
        """Of the folders that are there; a container's root is its own."""
        return [folder for folder in self._folders if folder != Path("/") and _is_there(folder)]


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
