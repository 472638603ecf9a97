"""Runs the wrapper as what it is in a pod: process 1 of a PID namespace, with real shells and real signals."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from tests.kit.proc import descendants_of
from tests.kit.wait import until

SHELLS = {"dash": ["dash"], "bash": ["bash"], "bash-posix": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
"""What /bin/sh is: in Debian's images, in those of Fedora's family (bash as sh is POSIX), in Alpine's."""
EVERY_SHELL = pytest.mark.parametrize("shell", [pytest.param(shell, marks=pytest.mark.processes) for shell in SHELLS])
PATIENCE_SECONDS = 20.0
SAY = 'for word; do printf "<%s>" "$word"; done'
"""Shell: print the arguments."""


class Container:
    """One run of a script as process 1."""

    def __init__(self, process: subprocess.Popen[str], errors: Path | None = None) -> None:
        self.process, self.errors = process, errors

    @cached_property
    def pid(self) -> int:
        """Of process 1, outside of its namespace."""
        (pid,) = eventually(lambda: children_of(self.process.pid), "process 1 starts")
        return pid

    def freeze(self) -> None:
        """Like a machine that is off: it sends nothing, and ends no connection."""
        for process in descendants_of(self.pid):
            os.kill(process, signal.SIGSTOP)

    def signal(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.pid, number)

    def running(self) -> bool:
        return self.process.poll() is None

    def end(self) -> tuple[int, str, str]:
        """Waits for the end; exit code, standard output and standard error."""
        out, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, out, self.errors.read_text() if self.errors else err

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def start(
    shell: str,
    script: str,
    *args: str,
    name: str = "elastic-pytorch",
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    errors: Path | None = None,
) -> Container:
    """Starts `sh -c SCRIPT NAME ARGS...`; what is still there when the test ends is killed by `kill`.

    Its standard error goes to the file `errors`, to be read while it runs.
    """
    program, *options = shell_command(shell)
    rootless = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = [required("unshare"), "--pid", "--mount-proc", "--fork", "--kill-child", *rootless]
    # Whatever started these tests may ignore signals, as nohup does; a container's first process ignores none.
    defaults = [required("env"), "--default-signal"]
    command = [*defaults, *unshare, program, *options, "-c", script, name, *args]
    environment = dict(os.environ) if env is None else dict(env)
    with errors.open("w") if errors else nullcontext(subprocess.PIPE) as stderr:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=folder,
        )
    return Container(process, errors)


def run(shell: str, script: str, *args: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """The same to the end, for scripts that end by themselves."""
    return start(shell, script, *args, env=env).end()


def shell_command(shell: str) -> Sequence[str]:
    program, *options = SHELLS[shell]
    return [required(program), *options]


def required(program: str) -> str:
    path = which(program)
    assert path, f"{program} is not installed; on Debian: apt-get install dash bash busybox-static util-linux"
    return path


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def state_of(pid: int) -> str:
    """The letter of the process's state (Z: zombie), empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def eventually(probe: Callable[[], Any], what: str) -> Any:
    """The first true value of `probe`."""
    return until(what, probe, seconds=PATIENCE_SECONDS, poll_seconds=0.01)


def program(path: Path, text: str) -> Path:
    """A shell script that can be run."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def image_python(path: Path, *modules: str, torch: str = "2.4.0") -> Path:
    """A real python that has these modules and no others, with torch's metadata; it runs nothing but `-c PROGRAM`.

    Else it prints its own path, and its arguments. `torch` is a version, "" where there is no metadata.
    """
    site = path.parent / f"modules of {path.name}"
    for module in modules:
        (site / module).mkdir(parents=True)
        (site / module / "__init__.py").write_text("raise RuntimeError('it must not be imported')\n")
    if "torch" in modules and torch:
        (site / "torch.dist-info").mkdir()
        (site / "torch.dist-info" / "METADATA").write_text(f"Name: torch\nVersion: {torch}\n")
    ask = f'PYTHONPATH="{site}" exec {sys.executable} -S "$@"'
    return program(path, f'if [ "$1" = -c ]; then {ask}; fi\nprintf %s "$0"\n{SAY}')
