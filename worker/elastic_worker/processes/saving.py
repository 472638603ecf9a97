"""Asks a script for a checkpoint: by a file that appears, and by a signal if the job names one (132).

The training process makes this request to itself, right after the optimizer step that all ranks agree on. If steps are
not counted, the launcher makes it to all processes at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from elastic_worker import contract
from elastic_worker.proc import catches_signal

_ENV_SIGNAL = contract.ENV_CHECKPOINT_SIGNAL


class CheckpointRequest:
    """A request for a checkpoint, made within the training process. `environ` is the process's environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._file, self._signal_name = Path(environ[contract.ENV_SAVE_FILE]), environ.get(_ENV_SIGNAL, "")
        self._is_sent = False

    def make(self) -> None:
        """Ask the script. The signal is sent only to a script that handles it, since it would end any other."""
        self._file.touch()
        self._is_sent = bool(self._signal_name) and _is_handled(signal.Signals[self._signal_name])
        if self._is_sent:
            signal.raise_signal(signal.Signals[self._signal_name])

    def is_taken(self) -> bool:
        """Whether the script has seen the request: its handler was called, or it has removed the file."""
        return self._is_sent or not self._file.exists()


def _is_handled(number: signal.Signals) -> bool:
    return signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN)


def ask_from_outside(pid: int, file: Path, name: str) -> None:
    """Ask the script of another process. `name` is the signal's, "" for none."""
    with suppress(FileNotFoundError):  # the launcher removes the folder at its end
        file.touch()
    if handles(pid, name):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.Signals[name])


def handles(pid: int, name: str) -> bool:
    """Whether the process has a handler for the named signal; False for the name ""."""
    return bool(name) and catches_signal(pid, signal.Signals[name])


def should_save() -> bool:
    """Whether the job asks the script for a checkpoint now. True once for each request.

    All ranks get the request after the same optimizer step. They may be a step apart if steps are not counted, or if no
    step was done within ten seconds of the start. Always False outside of Elastic mode.
    """
    path = os.environ.get(contract.ENV_SAVE_FILE)
    if not path:
        return False
    try:
        Path(path).unlink()
    except FileNotFoundError:
        return False
    return True
