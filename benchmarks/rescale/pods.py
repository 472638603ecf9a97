"""A pod without Kubernetes: a process that is number 1 in a PID namespace of its own, so its end ends all in it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

END_SECONDS = 20.0
NUMBERED = 'echo "$1" >/proc/sys/kernel/ns_last_pid; shift; exec "$@"'


class Pod:
    """Starts at once; what it prints goes to `log`.

    Its processes are numbered from `first_pid` on: torchrun's agents know each other by host name and pid, and the
    host name is the same for all.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, environ: Mapping[str, str], log: Path, first_pid: int
    ) -> None:
        self.name, self.log = name, log
        with log.open("ab") as output:
            inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
            numbered = ["/bin/sh", "-c", NUMBERED, "pod", str(first_pid - 1)]
            self._process = subprocess.Popen(
                [*inside, *numbered, *command],
                env=dict(environ),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )

    def is_running(self) -> bool:
        """Whether its first process has not ended."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> int | None:
        """Its first process's exit code, None if it has not ended within that time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Tell its first process to go, as the kubelet does."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all of it at once, and wait for that."""
        self._signal(signal.SIGKILL)
        self._process.kill()
        self._process.wait(END_SECONDS)

    def said(self) -> str:
        """All it has printed."""
        return self.log.read_text(errors="replace")

    def _signal(self, number: int) -> None:
        if not self.is_running():
            return
        try:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        except OSError:
            return
        for child in children[:1]:
            os.kill(int(child), number)
