"""Reads /proc; a process that has ended has no values."""

from __future__ import annotations

import contextlib
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Direct children of its first thread."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def descendants_of(pid: int) -> list[int]:
    """Children, and their descendants."""
    found = children_of(pid)
    return [*found, *(inner for child in found for inner in descendants_of(child))]


def stat_of(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def is_running(pid: int) -> bool:
    """Whether the process has not ended; a zombie has."""
    return stat_of(pid)[:1] not in ([], ["Z"], ["X"])


def command_line(pid: int) -> str:
    """The command line with which it was started."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def environ_of(pid: int) -> dict[str, str]:
    """The environment that it was started with."""
    with contextlib.suppress(OSError):
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return {}


def open_files(pid: int) -> list[str]:
    """Names of the files that it has open."""
    names = []
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                names.append(str(link.readlink()))
    return names
