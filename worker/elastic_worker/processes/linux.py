"""Linux system calls for parent and child processes, and for limits, that Python does not offer."""

from __future__ import annotations

import os
import resource
import signal
import time
from contextlib import suppress

from elastic_worker.proc import die_with, prctl

DUMP_SIGNAL = signal.SIGRTMIN + 12
"""Makes a training process print the stacks of its threads (see run.py).

It is from the middle of the real-time signals: the C library uses the first ones, and debuggers the last ones.
"""

PR_SET_CHILD_SUBREAPER = 36

MOST_DESCRIPTORS = 1 << 20
"""An upper limit, since some programs loop over all descriptors that they could have."""
PARENT_SECONDS = 10
"""The longest that a forked process waits to become the launcher's child."""


def attach(launcher: int) -> None:
    """Make this process the leader of a new session, and let it die with the launcher, whose pid is `launcher`.

    Ends this process if the launcher has ended already.
    """
    with suppress(PermissionError):  # this process leads a session already
        os.setsid()
    deadline = time.monotonic() + PARENT_SECONDS
    while os.getppid() != launcher and time.monotonic() < deadline:
        time.sleep(0.001)
    die_with(launcher)


def set_subreaper(*, on: bool) -> None:
    """Set whether orphans among this process's descendants become its children."""
    prctl(PR_SET_CHILD_SUBREAPER, int(on))


def allow_descriptors() -> None:
    """Let this process and its children open as many files and sockets as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
