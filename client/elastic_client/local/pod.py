"""One pod: a launcher as a process of this machine, whose output appears line by line with a prefix.

It leads a separate session, so Ctrl-C reaches the run and not the pod. It gets SIGTERM when the run dies.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from elastic_worker import contract
from elastic_worker.inject import inject

START = "pod.py"
# Whenever the run ends, its pods leave like a deleted pod: after a checkpoint.
_START = """\
import runpy, signal
from elastic_worker.proc import die_with_parent

die_with_parent(signal.SIGTERM)
runpy.run_module("elastic_worker", run_name="__main__", alter_sys=True)
"""
LINE_BYTES = 65_536
"""Longer lines are split."""
LOOK_SECONDS = 0.05
LAST_LINES_SECONDS = 2.0
"""The time for the last output when the launcher has ended; processes that it started may hold the pipe open."""

Prefix = Callable[[], str]


def install(folder: Path) -> None:
    """Copy the launcher into the folder, as a pod's init container does, so that scripts find no code of the client.

    Raises:
        OSError: the folder cannot be written to.
    """
    inject(folder)
    (folder / START).write_text(_START)


class Pod:
    """A launcher that runs. `name` and `uid` are the pod's, `index` its place among the run's pods."""

    def __init__(
        self, process: asyncio.subprocess.Process, *, index: int, environ: Mapping[str, str], prefix: Prefix
    ) -> None:
        self.index, self.name, self.uid = index, environ[contract.ENV_POD_NAME], environ[contract.ENV_POD_UID]
        self.is_leaving = False
        self._job_uid = environ[contract.ENV_JOB_UID]
        self._process = process
        assert process.stdout is not None
        assert process.stderr is not None
        pumps = (_pump(process.stdout, sys.stdout.buffer, prefix), _pump(process.stderr, sys.stderr.buffer, prefix))
        self._pumps = [asyncio.create_task(pump) for pump in pumps]

    @property
    def code(self) -> int | None:
        """The launcher's exit code, minus a signal's number if one killed it; None while it runs."""
        return self._process.returncode

    def leave(self) -> None:
        """Send SIGTERM, as the kubelet does; once."""
        if not self.is_leaving:
            self.is_leaving = True
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once; its training processes die with it."""
        self.is_leaving = True
        self._signal(signal.SIGKILL)

    async def finish(self) -> None:
        """Wait for its end and its last lines, and end the processes that a killed launcher has left.

        asyncio's wait would last until all processes that the launcher started have closed its pipes.
        """
        while self.code is None:  # noqa: ASYNC110 - asyncio has no event for it
            await asyncio.sleep(LOOK_SECONDS)
        _end_rest(self._job_uid, self.uid)
        _, late = await asyncio.wait(self._pumps, timeout=LAST_LINES_SECONDS)
        for pump in late:
            pump.cancel()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)


def _end_rest(job_uid: str, uid: str) -> None:
    """Kill the remaining processes of a pod, as the end of process 1 does in a container."""
    marks = (f"{contract.ENV_JOB_UID}={job_uid}\0".encode(), f"{contract.ENV_POD_UID}={uid}\0".encode())
    for process in Path("/proc").glob("[1-9]*"):
        with suppress(OSError):
            environ = (process / "environ").read_bytes() + b"\0"
            if all(mark in environ for mark in marks):
                os.kill(int(process.name), signal.SIGKILL)


async def start(
    words: Sequence[str],
    *,
    python: str,
    launcher: Path,
    environ: Mapping[str, str],
    index: int,
    prefix: Prefix,
) -> Pod:
    """Start a new pod, with the launcher in the folder `launcher`. Raises OSError if that fails."""
    process = await asyncio.create_subprocess_exec(
        python,
        str(launcher / START),
        *words,
        env=dict(environ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    return Pod(process, index=index, environ=environ, prefix=prefix)


async def _pump(source: asyncio.StreamReader, target: BinaryIO, prefix: Prefix) -> None:
    """Copy whole lines; text after the last newline counts as a line, too."""
    rest = b""
    while chunk := await source.read(LINE_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) >= LINE_BYTES:
            whole, rest = [*whole, rest], b""
        _write(target, whole, prefix())
    if rest:
        _write(target, [rest], prefix())


def _write(target: BinaryIO, lines: Sequence[bytes], prefix: str) -> None:
    """Write the script's bytes unchanged, as to a terminal. A reader that has ended does not end the training."""
    if not lines:
        return
    with suppress(BrokenPipeError):
        target.write(b"".join(b"%s%s\n" % (prefix.encode(), line) for line in lines))
        target.flush()


def died(code: int) -> str:
    """The end of a launcher, in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def scratch(folder: Path, serial: int) -> Path:
    """A folder for the files of one start of a pod. Its path is short, because it contains sockets."""
    made = folder / str(serial)
    made.mkdir()
    os.chmod(made, 0o700)  # noqa: PTH101 - whatever the umask is
    return made
