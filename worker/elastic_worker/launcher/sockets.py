"""Paths for Unix sockets: the kernel takes short ones only."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MOST_PATH_BYTES = 100
SHORT_PREFIX = "elastic-socket-"


def short_path(folder: Path, name: str) -> Path:
    """In the folder; if that makes it too long, in a new one elsewhere."""
    path = folder / name
    if len(os.fsencode(path)) > MOST_PATH_BYTES:
        path = Path(tempfile.mkdtemp(prefix=SHORT_PREFIX, dir="/dev/shm")) / name
    return path


def remove_folder_of(path: Path) -> None:
    """Remove the new folder, if there had to be one."""
    if path.parent.name.startswith(SHORT_PREFIX):
        path.unlink(missing_ok=True)
        path.parent.rmdir()
