"""What the kernel tells of processes in /proc."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
_SESSION_FIELD = 3
"""Of the stat file, counted from the state on."""


def stat_of(folder: Path) -> list[str]:
    """Fields of the stat file in a process's or a thread's folder of /proc, from the state on.

    Raises OSError if it is gone.
    """
    # The name before them, in brackets, may itself have spaces and brackets, or be no text.
    return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()


def sessions(leaders: Iterable[int]) -> dict[int, set[int]]:
    """Leader -> the processes of its session, itself included, from one look at all processes. Takes milliseconds."""
    found: dict[int, set[int]] = {leader: set() for leader in leaders}
    for folder in PROC.iterdir() if found else ():
        if folder.name.isdigit():
            with suppress(OSError, IndexError):
                pid, session = int(folder.name), int(stat_of(folder)[_SESSION_FIELD])
                leader = pid if pid in found else session
                if leader in found:
                    found[leader].add(pid)
    return found


def moved_bytes(leaders: Iterable[int]) -> dict[int, int]:
    """Leader -> what the processes of its session have read and written so far, as far as that can be seen."""
    return {leader: sum(map(_moved_bytes, pids)) for leader, pids in sessions(leaders).items()}


def _moved_bytes(pid: int) -> int:
    with suppress(OSError):
        lines = (line.split() for line in (PROC / str(pid) / "io").read_text().splitlines())
        return sum(int(count) for name, count in lines if name in ("rchar:", "wchar:", "read_bytes:"))
    return 0
