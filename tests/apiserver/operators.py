"""Operator processes against a real API server, and what can be done to them: stop, kill, weigh, ask."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import httpx

from tests.apiserver.warm_parent import Forked, WarmParent
from tests.kit.wait import until

T = TypeVar("T")

STOP_SECONDS = 20
WAIT_SECONDS = 40.0
LEASE = "/apis/coordination.k8s.io/v1/namespaces/elastic-system/leases/elastic-operator"
LISTENS = "0A"
"""The state of such a socket, proc_net(5)."""


def eventually(
    what: str, look: Callable[[], T], *, seconds: float = WAIT_SECONDS, report: Callable[[], object] = str
) -> T:
    """The first true thing that `look` finds; a WaitRanOutError with `report()` after `seconds`."""
    return until(what, look, seconds=seconds, report=report)


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler of its own for a signal (SigCgt, proc_pid_status(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    return any(
        int(line.split()[1], 16) >> (number - 1) & 1 for line in status.splitlines() if line.startswith("SigCgt:")
    )


@dataclass(frozen=True, slots=True)
class Operator:
    """A running operator process."""

    process: subprocess.Popen[bytes] | Forked
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

    @property
    def port(self) -> int:
        """Where it listens, as Linux knows it; 0 before it does."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = {f"socket:[{row[9]}]": int(row[1].split(":")[1], 16) for row in rows if row[3] == LISTENS}
        return next((listening[file] for file in self._files() if file in listening), 0)

    def text(self) -> str:
        """Everything it has logged."""
        return self.log.read_text() if self.log.exists() else ""

    def get(self, path: str, *, token: str = "") -> httpx.Response | None:
        """Its answer to a request, with a bearer token if there is one; None as long as it does not listen."""
        if not (port := self.port):
            return None
        with suppress(httpx.TransportError):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return httpx.get(f"http://127.0.0.1:{port}{path}", headers=headers, trust_env=False)
        return None

    def metric(self, name: str) -> float:
        """Its value now; 0 as long as there is none."""
        answer = self.get("/metrics")
        lines = answer.text.splitlines() if answer is not None else []
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def stop(self) -> None:
        """SIGTERM, as a rollout does, once the process handles it; it must end well, and in time."""
        self.ask_to_stop()
        self.await_end()

    def ask_to_stop(self) -> None:
        """SIGTERM, once the process handles it."""
        eventually("a handler of SIGTERM", lambda: not self.lives or handles(self.process.pid, signal.SIGTERM))
        self.process.send_signal(signal.SIGTERM)

    def await_end(self) -> None:
        """Of one that was asked to stop."""
        eventually("its end", lambda: not self.lives, seconds=STOP_SECONDS, report=lambda: self.text()[-2000:])
        assert self.process.poll() == 0, self.text()[-2000:]

    def kill(self) -> None:
        """SIGKILL, as the kernel does when memory runs out; it is gone afterwards."""
        self.process.send_signal(signal.SIGKILL)
        eventually("its end", lambda: not self.lives)

    def resident_bytes(self) -> int:
        """Its memory (VmRSS)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    def open_files(self) -> int:
        """How many file descriptors it has open."""
        return len(self._files())

    def _files(self) -> list[str]:
        """What its file descriptors are; nothing of a process that has ended."""
        found: list[str] = []
        with suppress(FileNotFoundError):
            for file in Path(f"/proc/{self.process.pid}/fd").iterdir():
                with suppress(FileNotFoundError):
                    found.append(str(file.readlink()))
        return found


@dataclass(slots=True)
class Operators:
    """Starts operators, with logs in `folder`; `end` ends what is left."""

    kubeconfig: Path
    folder: Path
    parent: WarmParent
    started: list[Operator] = field(default_factory=list)

    def start(self, *, server: str = "", environ: Mapping[str, str] | None = None) -> Operator:
        """An operator that talks to the API server, or to `server` (plain http, no credentials) in its place.

        `environ` is added to the environment. Processes with the same POD_UID are, like the containers of one pod, one
        candidate for the lease: a later one need not wait for the end of an earlier one's lease.
        """
        log = self._new_log()
        return self._known(self.parent.fork(self._environ(server, environ), log), log)

    def start_cold(self, *, server: str = "", environ: Mapping[str, str] | None = None) -> Operator:
        """The same as a container does it: by the command line, with a Python that has nothing in memory yet."""
        log = self._new_log()
        command = [sys.executable, "-m", "elastic_operator", "run"]
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=self._environ(server, environ), stdout=output, stderr=output)
        return self._known(process, log)

    def end(self) -> None:
        """Stop all, so that the next test need not wait for the end of a lease."""
        left = [operator for operator in self.started if operator.lives]
        for operator in left:
            operator.ask_to_stop()
        for operator in left:
            operator.await_end()

    def _new_log(self) -> Path:
        return self.folder / f"operator-{len(self.started)}.log"

    def _known(self, process: subprocess.Popen[bytes] | Forked, log: Path) -> Operator:
        self.started.append(Operator(process, log))
        return self.started[-1]

    def _environ(self, server: str, more: Mapping[str, str] | None) -> dict[str, str]:
        own = {
            "KUBECONFIG": str(self._kubeconfig_for(server)),
            "ELASTIC_OPERATOR_PORT": "0",
            "ELASTIC_OPERATOR_WORKER_IMAGE": "registry.example/elastic-worker:1",
        }
        return {**os.environ, **own, **(more or {})}

    def _kubeconfig_for(self, server: str) -> Path:
        if not server:
            return self.kubeconfig
        path = self.folder / f"kubeconfig-{len(self.started)}"
        path.write_text(kubeconfig_of(server))
        return path


def kubeconfig_of(server: str, *, token: str = "") -> str:
    """For whoever has that token, to a server that talks plain http."""
    here, user = {"name": "here"}, {"token": token} if token else {}
    parts = {"clusters": {"cluster": {"server": server}}, "users": {"user": user}}
    parts["contexts"] = {"context": {"cluster": "here", "user": "here"}}
    listed = {kind: [here | part] for kind, part in parts.items()}
    return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "here", **listed})
