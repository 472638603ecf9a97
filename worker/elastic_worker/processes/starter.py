"""Starts this pod's training processes: forked from the warm parent if there is one, otherwise as new interpreters."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import contract
from . import environment, failure, program, saving, steps
from .children import Children, Process
from .output import Output
from .parent import BOOTSTRAP, WarmParent
from .program import Program
from .steps import Steps
from .store import Store as Store
from .ticket import Ticket
from .ticket import write as write_ticket

logger = logging.getLogger(__name__)

TORCH_MODULES = (
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.optim",
    "torch._dynamo",
    "torch.distributed.checkpoint",
)
"""Modules that most training processes import. The first optimizer imports torch._dynamo, which is as slow as torch."""
STORE_SECONDS = 120.0
"""The longest that a store takes to report its port. One that is not forked imports torch first."""
LAST_SECONDS = 0.05
"""The longest wait for the last lines of each stream of a failed process, during which the other processes wait."""
DRAIN_SECONDS = 1.0
"""The longest wait for the last lines of each stream."""


class TrainingProcess(Process):
    """A training process with its error file, step counter and save file, which are removed once it has ended."""

    def __init__(
        self, pid: int, *, kind: str, files: Mapping[str, Path], signal_name: str = "", output: Output | None = None
    ) -> None:
        super().__init__(pid)
        self._kind, self.signal_name, self._output = kind, signal_name, output
        self._error_file, self._steps_file, self._save_file = files["error"], files["steps"], files["save"]
        self.started = time.monotonic()
        self._error: dict[str, Any] | None = None
        self._steps = Steps()
        self.exited.add_done_callback(self._collect)

    def terminate(self) -> None:
        """Send SIGTERM. In a python program only the main process gets it, as with torchrun.

        A script that writes a checkpoint on SIGTERM would fail if its data loader's workers had ended as well.
        """
        if self._kind == program.COMMAND:
            super().terminate()
        elif not self.exited.done():
            os.kill(self.pid, signal.SIGTERM)
        self.propose(0)  # a process that is to end must not wait after a step

    @property
    def error(self) -> dict[str, Any] | None:
        """`message`, `traceback` and `exitCode` of its uncaught exception, None without one.

        The error is known as soon as the process has written its error file, before its end.
        """
        if self.exited.done():
            self._collect(self.exited)
        elif self._error is None and self._error_file.exists():
            self._error = failure.read(self._error_file, exit_code=1)
        return self._error

    @property
    def steps(self) -> Steps:
        """Optimizer steps so far; `Steps()` where they are not counted."""
        if not self.exited.done():
            return steps.read(self._steps_file)
        self._collect(self.exited)
        return self._steps

    @property
    def handles_signal(self) -> bool:
        """Whether the script handles the job's `checkpointSignal`; True if the job names none."""
        return not self.signal_name or saving.handles(self.pid, self.signal_name)

    def propose(self, step: int) -> None:
        """Let the process wait after its step `step`, unless it has passed that; 0 withdraws the proposal."""
        steps.propose(self._steps_file, step)

    def ask_for_checkpoint(self, step: int) -> None:
        """Ask the script for a checkpoint after its step `step`, which was proposed; 0 asks at once."""
        if step:
            steps.agree(self._steps_file, step)
        else:
            saving.ask_from_outside(self.pid, self._save_file, self.signal_name)

    def drain(self, seconds: float) -> None:
        """Wait for the last lines of its output, at most `seconds` per stream."""
        if self._output is not None:
            self._output.join(seconds)

    def last_lines(self) -> tuple[str, ...]:
        """The last lines that it printed. After its end this waits for them, at most LAST_SECONDS per stream.

        The wait is short, since a thread reads the lines, unless a stream blocks or a child process still holds it.
        """
        if self._output is None:
            return ()
        if self.exited.done():
            self._output.join(LAST_SECONDS)
        return self._output.last_lines()

    def _collect(self, exited: asyncio.Future[int]) -> None:
        if exited.cancelled():
            return
        if self._error_file.exists():
            self._error = failure.read(self._error_file, exit_code=exited.result()) or self._error
        if self._steps_file.exists():
            self._steps = steps.read(self._steps_file)
        remove(self._error_file, self._steps_file, self._save_file)


class Starter:
    """Starts the processes of one launcher.

    `folder` is private to it: made with mode 0700, removed by `close`. The warm parent imports `modules` and the user's
    `preload`; without `warm` there is no parent. `changed` is set when `warm` may have changed.
    """

    def __init__(
        self,
        *,
        children: Children,
        preload: Sequence[str],
        warm: bool,
        count_steps: bool,
        folder: Path,
        modules: Sequence[str] = TORCH_MODULES,
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.changed = asyncio.Event()
        self._children, self._folder, self._count_steps = children, folder, count_steps
        self._numbers = itertools.count(1)
        self._python = sys.executable
        self._stores: list[Process] = []
        self._outputs: list[Output] = []
        self._parent: WarmParent | None = None
        if warm:
            self._parent = WarmParent(
                children=children,
                folder=folder,
                modules=[*modules, *preload],
                environ=environment.of_parent(os.environ),
                on_change=self.changed.set,
            )

    @property
    def warm(self) -> bool:
        """Whether processes should be started now: the warm parent is ready, or there will be none."""
        return self._parent is None or self._parent.ready or bool(self._parent.given_up)

    @property
    def problem(self) -> str:
        """Why there is no warm parent, or which modules it lacks; "" if nothing is wrong."""
        return self._parent.problem if self._parent is not None else ""

    async def open(self) -> None:
        """Start the warm parent in the background."""
        if self._parent is not None:
            self._parent.open()

    def expect(self, environ: Mapping[str, str], *, python: str = "") -> None:
        """Start later processes with this environment, and by the interpreter `python`, which has torch.

        The warm parent is replaced if it could not make such processes.
        """
        self._python = python or self._python
        if self._parent is not None and (python or environment.early_differences(self._parent.environ, environ)):
            self._parent.renew(environment.of_parent(environ), python=python)

    async def start(
        self, program: Program, *, environ: Mapping[str, str], directory: str, local_rank: int
    ) -> TrainingProcess:
        """Start one training process. If the caller is cancelled, the process is killed.

        Raises OSError if no process can be started.
        """
        files = self._files()
        if self._count_steps:
            steps.create(files["steps"])
        ticket = Ticket(
            launcher=os.getpid(),
            program=program,
            environ={
                **environ,
                failure.ENV_ERROR_FILE: str(files["error"]),
                contract.ENV_SAVE_FILE: str(files["save"]),
            },
            directory=directory,
            steps_file=str(files["steps"]) if self._count_steps else "",
        )
        output = self._output(environ, local_rank)
        starting = asyncio.ensure_future(self._launch(ticket, files, output))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_kill_unwanted)
            raise

    async def start_store(self) -> Store:
        """Start the TCPStore of one generation's rendezvous. Each generation needs a store of its own.

        Ranks publish their addresses in it under keys that torch does not change from one generation to the next, so in
        a used store they would find their predecessors' addresses. Raises RuntimeError if the store ends without a
        port, and asyncio.TimeoutError if it reports none within STORE_SECONDS.
        """
        reader, writer = os.pipe()
        path = self._folder / f"{next(self._numbers)}.ticket"
        # A store gets the environment of the warm parent, because any other would make us renew the parent.
        environ = self._parent.environ if self._parent is not None else environment.of_parent(os.environ)
        ticket = Ticket(os.getpid(), Program(program.STORE, ""), environ, directory="/")
        with os.fdopen(reader, "rb") as answers, self._children.expecting():
            try:
                process = self._children.adopt(await self._begin(ticket, path, output=(writer, 2)))
            finally:
                os.close(writer)
            self._stores = [store for store in self._stores if not store.exited.done()] + [process]
            port = await asyncio.wait_for(_read_port(answers.fileno()), STORE_SECONDS)
        if not port:
            raise RuntimeError(f"the store ended with code {await process.wait()}")
        return Store(port, process)

    async def close(self) -> None:
        """End the warm parent and the stores, and remove the folder. The caller stops the training processes before."""
        if self._parent is not None:
            await self._parent.close()
        for store in self._stores:
            store.signal(signal.SIGKILL)
            await store.wait()
        for output in self._outputs:
            await asyncio.get_running_loop().run_in_executor(None, output.join, DRAIN_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _files(self) -> dict[str, Path]:
        number = next(self._numbers)
        return {kind: self._folder / f"{number}.{kind}" for kind in ("ticket", "error", "steps", "save")}

    def _output(self, environ: Mapping[str, str], local_rank: int) -> Output:
        is_alone = environ.get("LOCAL_WORLD_SIZE", "1") == "1"
        output = Output("" if is_alone else f"[default{local_rank}]:")
        self._outputs = [other for other in self._outputs if not other.ended()] + [output]
        return output

    async def _launch(self, ticket: Ticket, files: dict[str, Path], output: Output) -> TrainingProcess:
        with self._children.expecting():
            try:
                pid = await self._begin(ticket, files["ticket"], output=output.descriptors)
            finally:
                output.started()
            signal_name = ticket.environ.get(contract.ENV_CHECKPOINT_SIGNAL, "")
            process = TrainingProcess(
                pid, kind=ticket.program.kind, files=files, signal_name=signal_name, output=output
            )
            return self._children.watch(process)

    async def _begin(self, ticket: Ticket, path: Path, *, output: tuple[int, int]) -> int:
        """Start a process that takes the ticket: forked if possible, else a new interpreter. Returns its pid."""
        if self._parent is not None and self._may_fork(self._parent, ticket):
            write_ticket(ticket, path)
            pid = await self._parent.fork(path, output=output)
            remove(path)
            if pid is not None:
                return pid
        write_ticket(ticket, path)
        command = [self._python, BOOTSTRAP, "run", str(path)]
        return self._children.spawn(command, environ=ticket.environ, output=output)

    def _may_fork(self, parent: WarmParent, ticket: Ticket) -> bool:
        if ticket.program.kind == program.COMMAND or not parent.ready:
            return False
        early = environment.early_differences(parent.environ, ticket.environ)
        if not early:
            return True
        logger.info("this process is started cold, and the warm parent is renewed variables=%s", ",".join(early))
        parent.renew(environment.of_parent(ticket.environ))
        return False


def remove(*paths: Path) -> None:
    """Remove files, some of which may not exist."""
    for path in paths:
        path.unlink(missing_ok=True)


def _kill_unwanted(starting: asyncio.Future[TrainingProcess]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().signal(signal.SIGKILL)


async def _read_port(descriptor: int) -> int:
    """The port that the store writes; 0 if it ended without writing one."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    data = os.read(descriptor, 32)
    return int(data) if data.strip().isdigit() else 0
