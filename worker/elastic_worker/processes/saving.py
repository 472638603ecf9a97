"""Asks a script for a checkpoint: a file appears, and a signal comes where the job names one (132).

In the training process that is done right after the step that all ranks agree on; where steps are not counted, the
launcher does it to all processes at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from elastic_worker import contract
from elastic_worker.proc import PROC


def ask(environ: Mapping[str, str]) -> None:
    """In the training process, with its environment. A signal that the script does not handle would end it."""
    Path(environ[contract.ENV_SAVE_FILE]).touch()
    name = environ.get(contract.ENV_CHECKPOINT_SIGNAL, "")
    if name and signal.getsignal(signal.Signals[name]) not in (signal.SIG_DFL, signal.SIG_IGN):
        signal.raise_signal(signal.Signals[name])


def ask_from_outside(pid: int, file: Path, name: str) -> None:
    """The same for another process; `name` is the signal's, "" for none."""
    with suppress(FileNotFoundError):  # its folder goes with the launcher
        file.touch()
    if handles(pid, name):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.Signals[name])


def handles(pid: int, name: str) -> bool:
    """Whether a process has a handler for that signal."""
    with suppress(OSError):
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(name) and bool(int(line.split()[1], 16) >> (signal.Signals[name] - 1) & 1)
    return False


def should_save() -> bool:
    """Whether the script is asked for a checkpoint; True once for each request, on all ranks after the same step.

    Outside of Elastic mode nobody asks.
    """
    path = os.environ.get(contract.ENV_SAVE_FILE)
    if not path:
        return False
    try:
        Path(path).unlink()
    except FileNotFoundError:
        return False
    return True
