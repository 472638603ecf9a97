"""Pods without Kubernetes, containers or rights: each is a process with all that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

END_SECONDS = 30.0


class Pod:
    """Starts at once; what it prints goes to `log`."""

    def __init__(self, name: str, command: Sequence[str], *, environ: Mapping[str, str], log: Path) -> None:
        self.name, self.log = name, log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                list(command),
                env=dict(environ),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        """Whether its first process has not ended."""
        return self._process.poll() is None

    def terminate(self) -> None:
        """Tell its first process to go, as the kubelet does."""
        self._process.terminate()

    def kill(self) -> None:
        """End all of it at once, and wait for that."""
        for pid in (self._process.pid, *_below(self._process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(END_SECONDS)

    def said(self) -> str:
        """All it has printed."""
        return self.log.read_text(errors="replace")


def _below(pid: int) -> list[int]:
    """Children, and theirs; those of its first thread only, where these programs start all of theirs."""
    with suppress(OSError):
        children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [*children, *(inner for child in children for inner in _below(child))]
    return []
