"""Lets native threads come to rest before the interpreter finishes, or forks.

gloo frees a collective's tensors on a thread of its own, shortly after it has woken the waiting thread, and needs the
interpreter's lock for that.

An interpreter that finishes ends the thread that asks for its lock, and the end of a C++ thread in that place ends the
process: "terminate called without an active exception", SIGABRT. So did 5 of 28 plain python processes whose last act
was a collective, 2 of 28 that the launcher had started, and none of 120 that the warm parent had forked (torch 2.15,
python 3.11).

Asking for the lock, such a thread takes for a moment the lock of the list of threads. A process forked in that moment
inherits it taken, and waits for it for ever, before any handler of SIGTERM: a DataLoader's worker that gives no data,
or for which its parent waits at its end. Seen once in some thousand forks, on a busy machine; mended in python 3.12
(gh-112275) and in the last releases of some earlier ones.
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
"""Of other threads' CPU time, as some never rest; on a busy machine those that want to run wait for their turn."""
MOST_FINISH_SECONDS = 10.0
"""Of the clock: a thread that waits for a disk uses no CPU."""
FORK_SECONDS = 0.05
"""The same before a fork, and short: a DataLoader forks each of its workers in each epoch."""
LOOK_SECONDS = 0.002
"""Time between two looks, in which the lock is free."""
QUIET_LOOKS = 3
MENDED_IN = (3, 12)
_TASKS = Path("/proc/self/task")


@cache
def install() -> None:
    """At the end of this process and before its forks, once; last there, as hooks run in the opposite order."""
    atexit.register(lambda: let_threads_rest(MOST_FINISH_SECONDS, cpu_seconds=FINISH_SECONDS))
    if sys.version_info < MENDED_IN:
        os.register_at_fork(before=lambda: let_threads_rest(FORK_SECONDS, cpu_seconds=FORK_SECONDS))


def let_threads_rest(most_seconds: float, *, cpu_seconds: float) -> None:
    """Wait until no other thread of this process wants to run; at most that much CPU time, or `most_seconds`."""
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
    """As `proc(5)` has it: R runs or wants to, D is in the kernel, S sleeps. "X", dead, if it is gone."""
    with suppress(OSError):
        return stat_of(task)[0]
    return "X"
