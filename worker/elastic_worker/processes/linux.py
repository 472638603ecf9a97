"""Parents and children as Linux has them, and the calls that Python lacks."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

# From the middle of the real-time signals: the C library keeps the first ones, debuggers like the last.
DUMP_SIGNAL = signal.SIGRTMIN + 12
"""Makes a training process print the stacks of its threads (see run.py)."""

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

PARENT_SECONDS = 10
"""How long a forked process waits until it has become the launcher's child."""


def attach(launcher: int) -> None:
    """Lead a session of one's own, and die with the launcher. Ends the process if the launcher is gone already."""
    with suppress(PermissionError):  # it leads one already
        os.setsid()
    deadline = time.monotonic() + PARENT_SECONDS
    while os.getppid() != launcher and time.monotonic() < deadline:
        time.sleep(0.001)
    die_with_parent(signal.SIGKILL)
    if os.getppid() != launcher:
        os._exit(1)


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this process a signal when its present parent dies."""
    _prctl(PR_SET_PDEATHSIG, signal_number)


def set_subreaper(*, on: bool) -> None:
    """Say whether orphans among this process's descendants become its children."""
    _prctl(PR_SET_CHILD_SUBREAPER, int(on))


def stat_of(folder: Path) -> list[str]:
    """Fields of the stat file in a process's or a thread's folder of /proc, from the state on.

    Raises OSError if it is gone.
    """
    # The name before them, in brackets, may itself have spaces and brackets, or be no text.
    return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()


def session_of(leader: int) -> list[int]:
    """Pids of the processes in the session of that leader."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            if int(stat_of(folder)[3]) == leader:
                pids.append(int(folder.name))
    return pids


def moved_bytes(folder: Path) -> int:
    """What the process with that folder in /proc has read and written, from disks and elsewhere; 0 if it is gone."""
    with suppress(OSError):
        lines = (line.split() for line in (folder / "io").read_text().splitlines())
        return sum(int(count) for name, count in lines if name in ("rchar:", "wchar:", "read_bytes:"))
    return 0


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
