"""A pod without Kubernetes: a process with all its descendants."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

END_SECONDS = 30.0
NUMBERED = 'echo "$1" >/proc/sys/kernel/ns_last_pid; shift; exec "$@"'


def numbered(command: Sequence[str], first_pid: int) -> list[str]:
    """The command, with pids from `first_pid` on. Only for use inside a PID namespace.

    torchrun's agents know each other by host name and pid, and the host name is the same for all.
    """
    return ["/bin/sh", "-c", NUMBERED, "pod", str(first_pid - 1), *command]


class Pod:
    """A process that starts at once, without any rights; its output is written to `log`.

    With `first_pid` it is number 1 in a new PID namespace, as in a container: its end ends all processes there. That
    needs root.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, environ: Mapping[str, str], log: Path, first_pid: int | None = None
    ) -> None:
        self.name, self.log = name, log
        self._is_inside = first_pid is not None
        alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        whole = list(command) if first_pid is None else [*alone, *numbered(command, first_pid)]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                whole,
                env=dict(environ),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def code(self) -> int | None:
        """Its first process's exit code, None while it runs."""
        return self._process.poll()

    def is_running(self) -> bool:
        """Whether its first process has not ended."""
        return self.code() is None

    def terminate(self) -> None:
        """Send SIGTERM to its first process, as the kubelet does."""
        first = _children(self._process.pid)[:1] if self._is_inside else [self._process.pid]
        if self.is_running():
            _signal(first, signal.SIGTERM)

    def kill(self) -> None:
        """Kill all its processes, and wait for their end."""
        if self.is_running():
            _signal([self._process.pid, *_below(self._process.pid)], signal.SIGKILL)
        self._process.wait(END_SECONDS)

    def said(self) -> str:
        """All its output."""
        return self.log.read_text(errors="replace")


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _below(pid: int) -> list[int]:
    """All descendants."""
    return [each for child in _children(pid) for each in (child, *_below(child))]


def _children(pid: int) -> list[int]:
    """The children of its first thread only, in which these programs start all their children."""
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
