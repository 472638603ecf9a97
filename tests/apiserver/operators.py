"""Operator processes against a real API server, and what can be done to them: stop, kill, freeze, thaw, weigh."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import yaml

T = TypeVar("T")

STOP_SECONDS = 20
WAIT_SECONDS = 40.0


def eventually(
    what: str, look: Callable[[], T], *, seconds: float = WAIT_SECONDS, report: Callable[[], object] = str
) -> T:
    """The first true thing that `look` finds; an AssertionError with `report()` after `seconds`."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"waited {seconds} s for {what} in vain; {report()}"
        time.sleep(0.05)
    return found


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler of its own for a signal (SigCgt, proc_pid_status(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    return any(
        int(line.split()[1], 16) >> (number - 1) & 1 for line in status.splitlines() if line.startswith("SigCgt:")
    )


@dataclass(slots=True)
class Operator:
    """A running operator process."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def leads(self) -> bool:
        """Whether it has led at any time."""
        return "leading as" in self.text()

    @property
    def is_candidate(self) -> bool:
        """Whether it leads, or has seen that another one does."""
        return self.leads or "standing by" in self.text()

    @property
    def lives(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    def text(self) -> str:
        """Everything it has logged."""
        return self.log.read_text()

    def stop(self) -> None:
        """SIGTERM, as a rollout does, once the process handles it; it must end well, and in time."""
        eventually("a handler of SIGTERM", lambda: not self.lives or handles(self.process.pid, signal.SIGTERM))
        self.process.terminate()
        assert self.process.wait(STOP_SECONDS) == 0, self.text()[-2000:]

    def kill(self) -> None:
        """SIGKILL, as the kernel does when memory runs out."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """SIGSTOP, as a paused virtual machine looks like."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def resident_bytes(self) -> int:
        """Its memory (VmRSS)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    def open_files(self) -> int:
        """How many file descriptors it has open."""
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())


@dataclass(slots=True)
class Operators:
    """Starts operators, with logs in `folder`; `end` ends what is left."""

    kubeconfig: Path
    folder: Path
    started: list[Operator] = field(default_factory=list)

    def start(self, *, server: str = "", environ: Mapping[str, str] | None = None) -> Operator:
        """An operator that talks to the API server, or to `server` (plain http, no credentials) in its place.

        `environ` is added to the environment. Processes with the same POD_UID are, like the containers of one pod, one
        candidate for the lease: a later one need not wait for the end of an earlier one's lease.
        """
        log = self.folder / f"operator-{len(self.started)}.log"
        own = {"KUBECONFIG": str(self._kubeconfig_for(server)), "ELASTIC_OPERATOR_PORT": "0"}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "elastic_operator", "run"],
                env={**os.environ, **own, **(environ or {})},
                stdout=output,
                stderr=output,
            )
        self.started.append(Operator(process, log))
        return self.started[-1]

    def end(self) -> None:
        """Stop all, so that the next test need not wait for the end of a lease."""
        for operator in self.started:
            if operator.lives:
                operator.thaw()
                operator.stop()

    def _kubeconfig_for(self, server: str) -> Path:
        if not server:
            return self.kubeconfig
        path = self.folder / f"kubeconfig-{len(self.started)}"
        context = {"cluster": "here", "user": "nobody"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": {"server": server}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "here", "context": context}],
            "current-context": "here",
        }
        path.write_text(yaml.safe_dump(config))
        return path
