"""Paths for Unix sockets, of which the kernel accepts only short ones."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MOST_PATH_BYTES = 100
SHORT_PREFIX = "elastic-socket-"


def short_path(folder: Path, name: str) -> Path:
    """The path of `name` in the folder, or in a new folder elsewhere if that path is too long for a socket."""
    path = folder / name
    if len(os.fsencode(path)) > MOST_PATH_BYTES:
        path = Path(tempfile.mkdtemp(prefix=SHORT_PREFIX, dir="/dev/shm")) / name
    return path


def remove_folder_of(path: Path) -> None:
    """Remove the new folder, if `short_path` had to make one."""
    if path.parent.name.startswith(SHORT_PREFIX):
        path.unlink(missing_ok=True)
        path.parent.rmdir()
