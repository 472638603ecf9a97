"""Checks whether this process can still be forked safely. The warm parent checks after each import.

A fork copies a single thread, and shares open files. Python knows only its threads, and torch only its use of CUDA;
/proc shows the threads and devices of other libraries.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path

from elastic_worker.proc import stat_of

CUDA_TOUCHED = 3
"""Exit status of a trial process that cannot use CUDA."""
CUDA_DEVICE = "/dev/nvidia-uvm"
"""The device that CUDA opens. NVML, through which torch counts GPUs, opens others, and does no harm to forks."""
END_SECONDS = 0.1
"""The longest wait for threads that are about to end, in seconds."""
LOOK_SECONDS = 0.005
_SELF = Path("/proc/self")


class Fitness:
    """Judges this process. Native threads that exist at first, such as a profiler's, do not count."""

    def __init__(self) -> None:
        self._known_threads = _threads()

    def accept(self) -> None:
        """Accept the present native threads: they are known to survive forks, or not to be needed after one."""
        self._known_threads |= _threads()

    def problem(self) -> str:
        """Why this process must not be forked any more; "" if it can be."""
        if len(sys._current_frames()) > 1:
            return "it starts a thread, and threads do not survive a fork"
        if _trial() == CUDA_TOUCHED:
            return "it initialises CUDA, which processes forked afterwards cannot use"
        if _is_open(CUDA_DEVICE):
            return f"it opens {CUDA_DEVICE}: CUDA is in use, and processes forked afterwards cannot use it"
        if names := self._new_threads():
            return f"it starts a native thread ({', '.join(names)}), and threads do not survive a fork"
        return ""

    def _new_threads(self) -> list[str]:
        """Names of new native threads that remain after a trial fork. OpenBLAS, for example, ends its own for one."""
        end = time.monotonic() + END_SECONDS
        while (new := _threads() - self._known_threads) and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
        return sorted({name for thread in new if (name := _name(thread))})


def quiet_fork() -> int:
    """Fork without Python's warning about the threads of libraries: the libraries that remain have fork handlers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _trial() -> int:
    """Exit status of a forked process that only checks whether it could use CUDA."""
    pid = quiet_fork()
    if pid == 0:
        is_bad = getattr(sys.modules.get("torch.cuda"), "_is_in_bad_fork", None)
        os._exit(CUDA_TOUCHED if is_bad and is_bad() else 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _threads() -> set[str]:
    """Ids of this process's threads that have not ended."""
    threads = set()
    for task in (_SELF / "task").iterdir():
        with suppress(OSError):
            if stat_of(task)[0] not in "ZX":
                threads.add(task.name)
    return threads


def _name(thread: str) -> str:
    with suppress(OSError):
        return (_SELF / "task" / thread / "comm").read_text(errors="replace").strip() or "without a name"
    return ""


def _is_open(path: str) -> bool:
    for link in (_SELF / "fd").iterdir():
        with suppress(OSError):
            if str(link.readlink()) == path:
                return True
    return False
