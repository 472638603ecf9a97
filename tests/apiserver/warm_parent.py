"""A process that has imported all of the operator and forks operators: one costs a tenth of a second, not two.

`python -m tests.apiserver.warm_parent` reads orders, lines of JSON with a log file and an environment, and answers each
with the process id of a new operator. It has no thread and no event loop; when its orders end, so do the operators.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Forked:
    """A forked operator, in the words of `subprocess.Popen`."""

    pid: int
    code: Path
    """Where the warm parent writes the exit code, before it lets go of the process id."""

    def poll(self) -> int | None:
        """The exit code, a negative signal for a killed one; None while it lives."""
        text = self.code.read_text() if self.code.exists() else ""
        return int(text) if text else None

    def send_signal(self, number: int) -> None:
        """Nothing, if it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


@dataclass(frozen=True, slots=True)
class WarmParent:
    """Where operators come from."""

    process: subprocess.Popen[str]

    @classmethod
    def begin(cls) -> WarmParent:
        """One whose operators end with it."""
        command = [sys.executable, "-m", "tests.apiserver.warm_parent"]
        return cls(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def end(self) -> None:
        """Take no more orders."""
        self.process.communicate()

    def fork(self, environ: Mapping[str, str], log: Path) -> Forked:
        """An operator with this environment and no other, which writes to `log`."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"log": str(log), "environ": dict(environ)}) + "\n")
        self.process.stdin.flush()
        return Forked(int(self.process.stdout.readline()), _code_of(log))


def _code_of(log: Path) -> Path:
    return log.with_suffix(".code")


def _serve() -> None:
    from elastic_operator import command_line  # all of it, once; who gives orders needs none of it

    assert command_line
    gc.freeze()
    orders, ready = sys.stdin.buffer.raw, selectors.DefaultSelector()
    ready.register(orders, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.data:  # where the exit code goes of an operator that has ended
                ready.unregister(key.fd)
                _bury(key.fd, key.data)
            elif order := orders.readline():
                _start(ready, **json.loads(order))
            else:
                _end(ready)
                return


def _start(ready: selectors.BaseSelector, log: str, environ: dict[str, str]) -> None:
    if pid := os.fork():
        ready.register(os.pidfd_open(pid), selectors.EVENT_READ, _code_of(Path(log)))
        print(pid, flush=True)
    else:
        for key in list(ready.get_map().values()):
            os.close(key.fd)  # nobody else's end is this one's business
        ready.close()
        _become_operator(log, environ)


def _bury(pidfd: int, code: Path) -> None:
    """Who asks for the code finds it whole, or nothing."""
    ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
    assert ended
    part = code.with_suffix(".part")
    part.write_text(str(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status))
    part.rename(code)
    os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    os.close(pidfd)


def _end(ready: selectors.BaseSelector) -> None:
    for key in list(ready.get_map().values()):
        if key.data:
            signal.pidfd_send_signal(key.fd, signal.SIGKILL)
            os.waitid(os.P_PIDFD, key.fd, os.WEXITED)


def _become_operator(log: str, environ: dict[str, str]) -> None:
    from kubernetes.config import kube_config

    from elastic_operator import __main__ as program

    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for mine, stream in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(mine, stream)
    os.environ.clear()
    os.environ.update(environ)
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = environ["KUBECONFIG"]  # which it looks up when it is imported
    sys.argv = ["elastic-operator", "run"]
    sys.exit(program.main())


if __name__ == "__main__":
    _serve()
