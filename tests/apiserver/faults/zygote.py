"""Starts operator processes by the hundred: a process that has imported everything forks them.

`python -m tests.apiserver.faults.zygote` reads orders, lines of JSON with a log file and an environment, and answers
each with the process id of a new operator.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from elastic_operator.command_line import main
from tests.apiserver.operators import eventually


@dataclass(frozen=True, slots=True)
class Forked:
    """An operator process."""

    pid: int
    log: Path

    @property
    def lives(self) -> bool:
        """Whether the process is there."""
        return Path(f"/proc/{self.pid}").exists()

    def kill(self) -> None:
        """SIGKILL; it is gone afterwards."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        eventually(f"the end of process {self.pid}", lambda: not self.lives)

    def stop(self) -> None:
        """SIGTERM, as a rollout does."""
        os.kill(self.pid, signal.SIGTERM)
        eventually(f"the end of process {self.pid}", lambda: not self.lives)


class Zygote:
    """Where operators come from."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.children: list[Forked] = []
        self._process, self._folder = process, folder

    def start(self, environ: Mapping[str, str]) -> Forked:
        """An operator with this addition to its environment."""
        assert self._process.stdin
        assert self._process.stdout
        log = self._folder / f"forked-{len(self.children)}.log"
        self._process.stdin.write(json.dumps({"log": str(log), "environ": dict(environ)}) + "\n")
        self._process.stdin.flush()
        self.children.append(Forked(int(self._process.stdout.readline()), log))
        return self.children[-1]


def kubeconfig_of(server: str) -> str:
    """To a server that asks for no credentials."""
    here = {"name": "here"}
    parts = {"clusters": {"cluster": {"server": server}}, "users": {"user": {}}}
    parts["contexts"] = {"context": {"cluster": "here", "user": "here"}}
    listed = {kind: [here | part] for kind, part in parts.items()}
    return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "here", **listed})


@contextmanager
def zygote(server: str, folder: Path) -> Iterator[Zygote]:
    """One whose operators talk to `server` (plain http), log to files in `folder`, and end with it."""
    config = folder / "kubeconfig"
    config.write_text(kubeconfig_of(server))
    environ = {**os.environ, "KUBECONFIG": str(config), "ELASTIC_OPERATOR_PORT": "0"}
    command = [sys.executable, "-m", "tests.apiserver.faults.zygote"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
        running = Zygote(process, folder)
        try:
            yield running
        finally:
            for child in running.children:
                child.kill()


def _serve() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead leave at once
    for line in sys.stdin:
        order = json.loads(line)
        if pid := os.fork():
            print(pid, flush=True)
        else:
            _become_operator(**order)


def _become_operator(log: str, environ: dict[str, str]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with Path(log).open("wb", buffering=0) as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    os.environ.update(environ)
    sys.exit(main(["run"]))


if __name__ == "__main__":
    _serve()
