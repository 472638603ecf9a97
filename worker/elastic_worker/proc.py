"""Reads the state, session, traffic and signal handlers of processes from /proc; lets a process end with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
PR_SET_PDEATHSIG = 1
_SESSION_FIELD, _THREADS_FIELD = 3, 17
"""Indices of fields of the stat file, counted from the state on."""


def stat_of(folder: Path) -> list[str]:
    """Fields of the stat file in a process's or a thread's folder of /proc, from the state on.

    Raises OSError if the process or thread does not exist any more.
    """
    # The name before them, in brackets, may contain spaces, brackets and bytes that are no text.
    return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()


def sessions(leaders: Iterable[int]) -> dict[int, set[int]]:
    """Leader -> the pids of its session, itself included, from one scan of all processes. Takes milliseconds.

    Processes that have ended are left out, whether their parent has reaped them or not.
    """
    pids: dict[int, set[int]] = {leader: set() for leader in leaders}
    for folder in PROC.iterdir() if pids else ():
        if folder.name.isdigit():
            with suppress(OSError, IndexError):
                pid, stat = int(folder.name), stat_of(folder)
                leader = pid if pid in pids else int(stat[_SESSION_FIELD])
                if leader in pids and not _has_ended(stat):
                    pids[leader].add(pid)
    return pids


def _has_ended(stat: list[str]) -> bool:
    """Whether all threads have ended: a process keeps its memory while a thread hangs in the kernel."""
    return stat[0] in "ZX" and int(stat[_THREADS_FIELD]) <= 1


def moved_bytes(leaders: Iterable[int]) -> dict[int, int]:
    """Leader -> bytes that the visible processes of its session have read and written so far."""
    return {leader: sum(map(_moved_bytes, pids)) for leader, pids in sessions(leaders).items()}


def catches_signal(pid: int, number: int) -> bool:
    """Whether the process has a handler for that signal; False if it has ended."""
    with suppress(OSError):
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent, whose pid is `parent`, ends; end now if the parent has ended.

    The kernel takes the thread that started this process for the parent, so it must be the parent's main thread.
    """
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def die_with_parent(signal_number: int) -> None:
    """Let the kernel send this process the signal when its present parent dies."""
    prctl(PR_SET_PDEATHSIG, signal_number)


def prctl(option: int, value: int) -> None:
    """The system call. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _moved_bytes(pid: int) -> int:
    with suppress(OSError):
        lines = (line.split() for line in (PROC / str(pid) / "io").read_text().splitlines())
        return sum(int(count) for name, count in lines if name in ("rchar:", "wchar:", "read_bytes:"))
    return 0
