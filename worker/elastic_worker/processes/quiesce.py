"""Waits until native threads are idle, before the interpreter finishes or forks.

gloo frees a collective's tensors on a thread of its own, shortly after it has woken the waiting thread. It needs the
interpreter's lock (GIL) for that.

1. An interpreter that finishes ends each thread that asks for the GIL. If that is a C++ thread, the process aborts:
   "terminate called without an active exception", SIGABRT. This happened to 5 of 28 plain python processes
   whose last act was a collective, to 2 of 28 that the launcher had started, and to none of 120 that the warm parent
   had forked (torch 2.15, python 3.11).
2. A thread that asks for the GIL holds the lock of the list of threads for a moment. A process forked in that moment
   inherits the lock as taken, and waits for it for ever, before any handler of SIGTERM: a DataLoader's worker then
   gives no data, or its parent waits for it at its end. This was seen once in some thousand forks on a busy machine.
   Python 3.12 has fixed it (gh-112275), and so have the last releases of some earlier versions.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from elastic_worker.proc import stat_of

FINISH_SECONDS = 1.0
"""Limit at the end of a process, in CPU seconds of its other threads: some threads never become idle."""
MOST_FINISH_SECONDS = 10.0
"""Limit at the end of a process, in wall-clock seconds: a thread that waits for a disk uses no CPU."""
FORK_SECONDS = 0.05
"""The same limits before a fork. They are short, since a DataLoader forks each of its workers in each epoch."""
LOOK_SECONDS = 0.002
"""Time between two checks, in which the GIL is free."""
QUIET_LOOKS = 3
"""Number of checks in a row that must find all other threads idle."""
FIXED_IN = (3, 12)
_TASKS = Path("/proc/self/task")


@cache
def install() -> None:
    """Wait for idle threads at the end of this process and before its forks. Registers the hooks once.

    Call it early: exit hooks run in the opposite order, so this one runs last.
    """
    atexit.register(lambda: let_threads_rest(MOST_FINISH_SECONDS, cpu_seconds=FINISH_SECONDS))
    if sys.version_info < FIXED_IN:
        os.register_at_fork(before=lambda: let_threads_rest(FORK_SECONDS, cpu_seconds=FORK_SECONDS))


def let_threads_rest(most_seconds: float, *, cpu_seconds: float) -> None:
    """Wait until no other thread of this process is runnable.

    Gives up once they have used `cpu_seconds` of CPU time, or after `most_seconds` of wall-clock time.
    """
    end, enough = time.monotonic() + most_seconds, _used_by_others() + cpu_seconds
    quiet = 0 if _others_run() else 1
    while quiet < QUIET_LOOKS and time.monotonic() < end and _used_by_others() < enough:
        time.sleep(LOOK_SECONDS)
        quiet = 0 if _others_run() else quiet + 1


def _used_by_others() -> float:
    return time.process_time() - time.thread_time()


def _others_run() -> bool:
    own = str(threading.get_native_id())
    return any(_state(task) in "RD" for task in _TASKS.iterdir() if task.name != own)


def _state(task: Path) -> str:
    """The thread's state as in `proc(5)`: R is runnable, D waits in the kernel, S sleeps; "X" if it has ended."""
    with suppress(OSError):
        return stat_of(task)[0]
    return "X"
