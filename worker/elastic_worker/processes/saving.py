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

_ENV_SIGNAL = contract.ENV_CHECKPOINT_SIGNAL


class Request:
    """In the training process, with its environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._file, self._signal_name = Path(environ[contract.ENV_SAVE_FILE]), environ.get(_ENV_SIGNAL, "")
        self._is_sent = False

    def make(self) -> None:
        """Ask the script. A signal that it does not handle would end it."""
        self._file.touch()
        self._is_sent = bool(self._signal_name) and _is_handled(signal.Signals[self._signal_name])
        if self._is_sent:
            signal.raise_signal(signal.Signals[self._signal_name])

    def is_taken(self) -> bool:
        """Whether the script has heard of the request: its handler was called, or it has removed the file."""
        return self._is_sent or not self._file.exists()


def _is_handled(number: signal.Signals) -> bool:
    return signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN)


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

    Ranks may be a step apart where steps are not counted, or none was done within ten seconds of the start. Always
    False outside of Elastic mode.
    """
    path = os.environ.get(contract.ENV_SAVE_FILE)
    if not path:
        return False
    try:
        Path(path).unlink()
    except FileNotFoundError:
        return False
    return True
