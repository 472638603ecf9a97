"""Ends a process whose main thread hangs in a group that was given up.

The library's collectives can be given up, those inside torch cannot: DistributedDataParallel's, once after it was built
and in each forward of a model with buffers, or the script's. One of some dozens never ends. Then a new process joins
instead, and gets the state from the others.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from elastic_worker.proc import stat_of

log = logging.getLogger(__name__)

STUCK_SECONDS = 15.0
"""Time without any CPU use of the main thread."""
LOOK_SECONDS = 0.5
EXIT_STUCK = 70


def watch(is_out: Callable[[], bool]) -> None:
    """Watch on a thread until `is_out()`; end the process if its main thread hangs."""
    threading.Thread(target=_watch, args=(is_out,), name="elastic-stuck", daemon=True).start()


def _watch(is_out: Callable[[], bool]) -> None:
    used, since = _main_thread_ticks(), time.monotonic()
    while not is_out():
        time.sleep(LOOK_SECONDS)
        now = _main_thread_ticks()
        if now != used:
            used, since = now, time.monotonic()
        elif time.monotonic() >= since + STUCK_SECONDS:
            log.error(
                "stuck for %.0f s in a group that has lost a pod: the process ends, and comes back", STUCK_SECONDS
            )
            faulthandler.dump_traceback(all_threads=True)
            os._exit(EXIT_STUCK)


def _main_thread_ticks() -> int:
    """CPU time of the thread that runs the script, in the kernel's clock ticks."""
    fields = stat_of(Path(f"/proc/self/task/{os.getpid()}"))
    return int(fields[11]) + int(fields[12])
