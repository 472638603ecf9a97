"""How the launcher ends: its exit code, and what the kubelet puts into the pod's status as termination message."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from elastic_worker import contract

TERMINATION_LOG = "/dev/termination-log"
MOST_BYTES = 4096
"""Of a termination message; the kubelet cuts the rest."""


@dataclass(frozen=True)
class Ending:
    """`code` is 0 only if the job is done."""

    code: int
    message: str = ""


DONE = Ending(0)
LEFT = Ending(contract.EXIT_LEFT)


def leave_word(ending: Ending, *, file: str = TERMINATION_LOG) -> None:
    """Write the message, cut at its front; outside of a pod there is no such file, and nothing is written."""
    if ending.message and Path(file).is_file():
        with contextlib.suppress(OSError):
            Path(file).write_bytes(ending.message.encode()[-MOST_BYTES:])
