"""How the launcher ends: its exit code, and the termination message that the kubelet puts into the pod's status."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from elastic_worker import contract

TERMINATION_LOG = "/dev/termination-log"
MOST_BYTES = 4096
"""The kubelet's limit for a termination message; it cuts the rest."""


@dataclass(frozen=True)
class Ending:
    """The end of a pod. `code` is the exit code, 0 only if the job is done; `message` says why it failed."""

    code: int
    message: str = ""


DONE = Ending(0)
LEFT = Ending(contract.EXIT_LEFT)


def write_termination_message(ending: Ending, *, file: str = TERMINATION_LOG) -> None:
    """Write the last MOST_BYTES bytes of the message. Writes nothing outside of a pod, where there is no such file."""
    if ending.message and Path(file).is_file():
        with contextlib.suppress(OSError):
            Path(file).write_bytes(ending.message.encode()[-MOST_BYTES:])
