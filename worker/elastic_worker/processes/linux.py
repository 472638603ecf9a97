"""Parents and children as Linux has them, and the calls that Python lacks."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from contextlib import suppress

# From the middle of the real-time signals: the C library keeps the first ones, debuggers like the last.
DUMP_SIGNAL = signal.SIGRTMIN + 12
"""Makes a training process print the stacks of its threads (see run.py)."""

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

MOST_DESCRIPTORS = 1 << 20
"""Some programs go through all that they might have."""
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


def allow_descriptors() -> None:
    """Have this process and its children open as many files and sockets as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
