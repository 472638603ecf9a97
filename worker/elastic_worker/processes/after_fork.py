"""Makes a process forked from the warm parent look as if it had just been started.

A fork copies what a new interpreter would set up for itself: signal handlers, the environment and the values read from
it, the module search path, random seeds, multiprocessing's secrets. Each of these is renewed here.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import itertools
import os
import random
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

IGNORED_SIGNALS = {signal.SIGPIPE, signal.SIGXFSZ}
"""Signals that python ignores from its start."""
UNTOUCHABLE_SIGNALS = {signal.SIGKILL, signal.SIGSTOP}


def renew(environ: Mapping[str, str], *, directory: str) -> None:
    """Renew all of these in a forked process, for a program with this environment and this working directory."""
    # Some libraries would report the objects that the parent has frozen (`gc.freeze`) as leaked at the end.
    atexit.register(gc.unfreeze)
    reset_signals()
    replace_environment(environ, directory=directory)
    renew_seeds()
    renew_multiprocessing()
    apply_thread_count(environ)


def reset_signals() -> None:
    """Set Python's default handlers, and block no signal."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - UNTOUCHABLE_SIGNALS:
        with suppress(OSError, ValueError):
            signal.signal(number, _default(number))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _default(number: int) -> Any:
    if number == signal.SIGINT:
        return signal.default_int_handler
    return signal.SIG_IGN if number in IGNORED_SIGNALS else signal.SIG_DFL


def replace_environment(environ: Mapping[str, str], *, directory: str) -> None:
    """Replace the environment, the working directory, and the entries of `sys.path` that come from PYTHONPATH."""
    old = search_path_of(os.environ)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(directory)
    new = search_path_of(environ)
    if new != old:
        sys.path[:] = new + [entry for entry in sys.path if entry not in old]
    importlib.invalidate_caches()


def search_path_of(environ: Mapping[str, str]) -> list[str]:
    """PYTHONPATH's entries as absolute paths; relative ones start at the working directory."""
    value = environ.get("PYTHONPATH", "")
    return [str(Path(entry).absolute()) for entry in value.split(os.pathsep)] if value else []


def renew_seeds() -> None:
    """Seed from the system's randomness, as a new process does. GPUs' generators are made at their first use."""
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()


def renew_multiprocessing() -> None:
    """Renew multiprocessing's secret and counters, and the folders and helper processes that it remembers."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)
        process.ORIGINAL_DIR = str(Path.cwd())  # type: ignore[attr-defined]
        process._process_counter = itertools.count(1)  # type: ignore[attr-defined]
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None  # type: ignore[attr-defined]
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    if getattr(tracker, "_fd", None) is not None:
        os.close(tracker._fd)  # type: ignore[union-attr]
        tracker._fd = tracker._pid = None  # type: ignore[union-attr]


def apply_thread_count(environ: Mapping[str, str]) -> None:
    """Apply OMP_NUM_THREADS, which OpenMP reads only once: when the parent loaded torch."""
    value = environ.get("OMP_NUM_THREADS", "").split(",")[0]
    torch = sys.modules.get("torch")
    if torch is not None and value.isdigit() and int(value) > 0:
        torch.set_num_threads(int(value))
