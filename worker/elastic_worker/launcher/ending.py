"""How the launcher ends: its exit code, and the termination message that the kubelet puts into the pod's status."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from elastic_worker import contract
from elastic_worker.last_lines import LastLines

TERMINATION_LOG = "/dev/termination-log"
MOST_BYTES = 4096
"""The kubelet's limit for a termination message; it cuts the rest."""


@dataclass(frozen=True)
class Ending:
    """The end of a pod. `code` is the exit code, 0 only if the job is done; `message` says why it failed.

    `last_lines` is the last output of the process whose failure ended the job, in any pod.
    """

    code: int
    message: str = ""
    last_lines: LastLines | None = None


DONE = Ending(0)
LEFT = Ending(contract.EXIT_LEFT)


def write_termination_message(ending: Ending, *, file: str = TERMINATION_LOG) -> None:
    """Write the end of the message, and behind it the last lines: MOST_BYTES bytes.

    Writes nothing outside of a pod, where there is no such file.
    """
    if ending.message and Path(file).is_file():
        last_lines = f"\n{ending.last_lines}".encode() if ending.last_lines else b""
        with contextlib.suppress(OSError):
            Path(file).write_bytes(ending.message.encode()[-(MOST_BYTES - len(last_lines)) :] + last_lines)
