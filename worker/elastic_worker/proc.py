"""Reads /proc."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
_SESSION_FIELD, _THREADS_FIELD = 3, 17
"""Of the stat file, counted from the state on."""


def stat_of(folder: Path) -> list[str]:
    """Fields of the stat file in a process's or a thread's folder of /proc, from the state on.

    Raises OSError if it is gone.
    """
    # The name before them, in brackets, may itself have spaces and brackets, or be no text.
    return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()


def sessions(leaders: Iterable[int]) -> dict[int, set[int]]:
    """Leader -> the processes of its session, itself included, from one look at all processes. Takes milliseconds.

    Those that have ended are left out, whether their parent has heard of it or not.
    """
    found: dict[int, set[int]] = {leader: set() for leader in leaders}
    for folder in PROC.iterdir() if found else ():
        if folder.name.isdigit():
            with suppress(OSError, IndexError):
                pid, stat = int(folder.name), stat_of(folder)
                leader = pid if pid in found else int(stat[_SESSION_FIELD])
                if leader in found and not _has_ended(stat):
                    found[leader].add(pid)
    return found


def _has_ended(stat: list[str]) -> bool:
    """A process whose first thread has ended, while another one hangs in the kernel, still has its memory."""
    return stat[0] in "ZX" and int(stat[_THREADS_FIELD]) <= 1


def moved_bytes(leaders: Iterable[int]) -> dict[int, int]:
    """Leader -> bytes that the visible processes of its session have read and written so far."""
    return {leader: sum(map(_moved_bytes, pids)) for leader, pids in sessions(leaders).items()}


def _moved_bytes(pid: int) -> int:
    with suppress(OSError):
        lines = (line.split() for line in (PROC / str(pid) / "io").read_text().splitlines())
        return sum(int(count) for name, count in lines if name in ("rchar:", "wchar:", "read_bytes:"))
    return 0
