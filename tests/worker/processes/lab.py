"""A launcher's starter in this process, with real child processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from elastic_worker.processes.children import Children, Process
from elastic_worker.processes.program import SCRIPT, Program
from elastic_worker.processes.starter import Starter, TrainingProcess
from tests.kit.wait import until_async

CHEAP_MODULES = ("json", "multiprocessing.process", "tempfile")
"""The modules that the warm parent imports here instead of torch."""
WAIT_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Lab:
    """`folder` is the scripts' working directory, empty at first."""

    folder: Path
    children: Children
    starter: Starter

    @property
    def parent(self) -> Process:
        """The warm parent's process, which is private to the starter."""
        return self.starter._parent.process

    def script(self, text: str, name: str = "train.py") -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    async def start(self, program: Program, *, environ: Mapping[str, str] | None = None) -> TrainingProcess:
        environ = os.environ if environ is None else environ
        return await self.starter.start(program, environ=environ, directory=str(self.folder), local_rank=0)

    async def start_script(
        self, text: str, *args: str, environ: Mapping[str, str] | None = None, name: str = "train.py"
    ) -> TrainingProcess:
        return await self.start(Program(SCRIPT, self.script(text, name), args), environ=environ)

    async def until_warm(self, *, instead_of: Process | None = None) -> None:
        """Wait for a warm parent; with `instead_of` for another one than that."""
        while not self.starter.warm or (instead_of is not None and self.parent is instead_of):
            await self._change()

    async def _change(self) -> None:
        await self.starter.changed.wait()
        self.starter.changed.clear()


def of_rank(rank: int, port: int) -> dict[str, str]:
    """The variables that a launcher gives one of two processes."""
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "OMP_NUM_THREADS": "1",
    }


async def until(look: Callable[[], object], *, what: str = "it to be so") -> None:
    """Wait until `look` is true."""
    await until_async(what, look, seconds=WAIT_SECONDS, poll_seconds=0.005)


async def appears(path: Path) -> Path:
    """The path, once it exists."""
    await until(path.exists, what=path.name)
    return path


@asynccontextmanager
async def a_lab(
    folder: Path,
    *,
    modules: Sequence[str] = CHEAP_MODULES,
    preload: Sequence[str] = (),
    warm: bool = True,
    count_steps: bool = False,
) -> AsyncIterator[Lab]:
    """An open lab, not warm yet. At the end the starter's folder must be empty."""
    scratch, work = folder / "scratch", folder / "work"
    work.mkdir(exist_ok=True)
    children = Children()
    starter = Starter(
        children=children, preload=preload, warm=warm, count_steps=count_steps, folder=scratch, modules=modules
    )
    try:
        await starter.open()
        yield Lab(work, children, starter)
    finally:
        await starter.close()
        children.close()
    assert not scratch.exists()


def natively(*words: str, folder: Path, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run plain python; not while a lab is open, which would reap the process."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        close_fds=False,
        check=False,
        start_new_session=True,
        preexec_fn=_heed_signals,
    )


def _heed_signals() -> None:
    """Restore signals that the tests' parent may ignore (nohup does), which children inherit."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
