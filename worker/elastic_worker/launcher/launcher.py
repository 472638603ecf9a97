"""Runs one pod: carries out the coordinator's orders, reports to it, and leaves the job at SIGTERM.

Its parts: `Starter` starts processes, `WorkerGroup` holds those of the present generation, `CoordinatorConnection` is
the connection to the coordinator (which the master's pod also runs). This module connects the parts, and decides how
the pod ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from elastic_worker import contract, last_lines, wire
from elastic_worker.checkpoint.watch import CheckpointWatch
from elastic_worker.coordinator.part import Part
from elastic_worker.last_lines import LastLines
from elastic_worker.launcher.arguments import Arguments
from elastic_worker.launcher.command import Command
from elastic_worker.launcher.coordinating import CoordinatorProcess
from elastic_worker.launcher.coordinator_connection import CoordinatorConnection
from elastic_worker.launcher.ending import DONE, LEFT, Ending
from elastic_worker.launcher.health import Health
from elastic_worker.launcher.metrics import Totals, render
from elastic_worker.launcher.preparation import Preparation
from elastic_worker.launcher.progress import TrainerReports
from elastic_worker.launcher.server import StatusServer
from elastic_worker.launcher.sockets import remove_folder_of, short_path
from elastic_worker.launcher.stores import Stores
from elastic_worker.launcher.trainees import Trainees
from elastic_worker.launcher.training import training_status
from elastic_worker.launcher.worker_group import WorkerGroup
from elastic_worker.processes import standin, torchrun
from elastic_worker.processes.children import Children
from elastic_worker.processes.starter import Starter
from elastic_worker.protocol import orders, reports
from elastic_worker.protocol.codec import Message
from elastic_worker.protocol.standin import Python, Run
from elastic_worker.settings import Settings

log = logging.getLogger(__name__)

ALONE_SECONDS = 2.0
"""After SIGTERM, the longest that a pod waits for a coordinator that is not connected."""
CANCEL_SECONDS = 0.2
SAVE_SECONDS = 600.0
"""Time for a checkpoint before the pod leaves; less if its grace period is shorter."""
FINISH_SECONDS = 15.0
"""Time to finish a checkpoint's file that is being written when the processes are stopped."""
LEAVE_SECONDS = 1.0
"""Time for processes that were asked to end before they get SIGTERM."""
TOO_OLD = "torchrun was called by {}, which is Python {}.{}, and {}.{} or later is needed in Elastic mode"
FAREWELL_SECONDS = 0.5
"""Time in which the master's last messages reach the other pods."""


class Launcher:
    """Runs one pod, with private files in `scratch`."""

    def __init__(self, settings: Settings, given: Arguments, environ: Mapping[str, str], scratch: Path) -> None:
        self.settings, self.given, self.environ, self.scratch = settings, given, dict(environ), scratch
        self._ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._leave_by: float | None = None
        self._coordinator_status: dict[str, Any] = {}
        self._training: dict[str, Any] = {}
        self._totals = Totals()
        self._reports = TrainerReports(scratch)
        self._server = StatusServer(
            status=self.status, metrics=lambda: render(self.status(), self._totals), reports=self._reports
        )
        self._children = Children()
        self._starter = Starter(
            children=self._children,
            preload=settings.preload,
            warm=settings.warm,
            count_steps=settings.count_steps,
            folder=scratch,
        )
        self._connection = CoordinatorConnection(settings, self._handle)
        path, marker = settings.checkpoint_path, settings.checkpoint_complete
        self._watch = CheckpointWatch(Path(path), writers=self._pids, marker=marker) if path else None
        self._trainees = Trainees(
            settings.pod_uid,
            short_path(scratch, "library.sock"),
            report=self._connection.report,
            size=lambda: self._group.size,
        )
        self._group = WorkerGroup(
            settings,
            self._starter,
            self._connection.report,
            remember_generation=self._connection.remember_generation,
            environ=self.environ,
            trainees=self._trainees,
            watch=self._watch,
            more_environ=lambda given: self._reports.environ(given, self._server.port),
        )
        self._preparation = Preparation(self._group, lambda why: self._end_with(Ending(1, why)))
        self._connection.on_coordinator = self._trainees.set_coordinator
        self._save = False
        self._unused_flags: tuple[str, ...] = ()
        """The unused flags of a command's torchrun. The operator itself reads the flags in `args`."""
        self._command: Command | None = None
        if given.is_command:
            self._command = Command(
                given.words, self.environ, scratch, children=self._children, take=self._take_program
            )
        self._stores = Stores(self._starter, self._starter.changed.set)
        self._hosts = settings.is_master
        self._handlers: dict[type[Message], Callable[[Any], Awaitable[None]]] = {
            orders.Status: self._on_status,
            orders.Form: self._on_form,
            orders.Align: self._on_align,
            orders.StandStill: self._on_stand_still,
            orders.ProposeCheckpointStep: self._on_propose_checkpoint_step,
            orders.RequestCheckpoint: self._on_request_checkpoint,
            orders.Resume: self._on_resume,
            orders.Stop: self._on_stop,
            orders.Done: self._on_done,
            orders.Fail: self._on_fail,
            orders.Leave: self._on_leave,
            orders.Candidates: self._on_candidates,
            orders.Host: self._on_host,
            orders.Bind: self._on_bind,
        }

    async def run(self, is_terminating: Callable[[], bool]) -> Ending:
        """Run the pod to its end, and return how it ends. `is_terminating`: whether SIGTERM has come already.

        Raises torchrun.UsageError if the command line cannot be read.
        """
        if self._command is None:
            self._take_words(self.given.words)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_sigterm)
        if is_terminating():
            self._on_sigterm()
        tasks = [asyncio.ensure_future(part) for part in self._parts()]
        try:
            until: list[asyncio.Future[Any]] = [self._ending, *tasks]
            await asyncio.wait(until, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            return await self._end(await self._ending)
        finally:
            await _cancel(tasks)
            await self._starter.close()
            self._children.close()
            remove_folder_of(self._trainees.path)

    def _parts(self) -> list[Coroutine[Any, Any, None]]:
        """The coroutines that run concurrently. None of these coroutines ends by itself."""
        parts = [
            self._become_warm(),
            self._connection.run(),
            Health(self._group, self._connection).run(),
            self._serve_status(),
            self._trainees.serve(),
        ]
        if self.settings.is_master:
            parts.append(CoordinatorProcess(self._children, self.environ).run())
        if self._watch is not None:
            parts.append(self._follow_checkpoints(self._watch))
        if self._command is not None:
            parts.append(self._follow_command(self._command))
        return parts

    # -- warm start ---------------------------------------------------------------------------------------------------

    def _take_words(self, words: Any) -> torchrun.Torchrun:
        """Read the program and the number of processes from torchrun's command line. Raises torchrun.UsageError."""
        parsed = torchrun.parse(list(words), own=self.environ)
        for flag, why in parsed.ignored:
            log.info("%s is not used: %s", flag, why)
        self._group.program = parsed.program
        if isinstance(parsed.nproc, int):
            self._connection.report(reports.Processes(parsed.nproc))
            self._group.size = parsed.nproc
        elif parsed.nproc is not None:
            log.info("--nproc-per-node=%s is not used: the pod has %d processes", parsed.nproc, self._group.size)
        return parsed

    async def _take_program(self, request: Run) -> None:
        """Take the program of a command's call of torchrun. The python that called it then runs the script."""
        if request.python is not None and tuple(request.python.version) < contract.OLDEST_PYTHON:
            raise torchrun.UsageError(_too_old(request.python))
        self._unused_flags = self._take_words(request.argv).unfollowed
        self._group.directory, self._group.environ = request.directory, request.environ
        another = request.python if request.python is not None and not standin.is_ours(request.python) else None
        self._starter.expect(request.environ, python=another.executable if another is not None else "")
        self._starter.changed.set()

    async def _become_warm(self) -> None:
        """Report whether processes can be started at once. A host also starts a store for their rendezvous."""
        await self._starter.open()
        while True:
            self._starter.changed.clear()
            if self._starter.warm and self._group.program is not None:
                if self._hosts:
                    self._connection.report(reports.StorePort(await self._stores.ensure()))
                self._connection.report(reports.Warm(True))
            else:
                self._connection.report(reports.Warm(False))
            await self._starter.changed.wait()

    # -- orders of the coordinator ------------------------------------------------------------------------------------

    async def _handle(self, line: wire.Message) -> None:
        for kind, handle in self._handlers.items():
            if kind.key in line:
                await handle(kind.from_json(line))
        self._trainees.handle_order(line)

    async def _on_status(self, order: orders.Status) -> None:
        self._coordinator_status = order.status
        self._totals.add(self._coordinator_status)

    async def _on_align(self, order: orders.Align) -> None:
        self._group.aligning.begin(order.seconds, order.last_call)

    async def _on_stand_still(self, order: orders.StandStill) -> None:
        self._group.aligning.stand_still(order.round, marked=order.marked)

    async def _on_propose_checkpoint_step(self, order: orders.ProposeCheckpointStep) -> None:
        self._group.checkpoint_requests.propose(order)

    async def _on_request_checkpoint(self, order: orders.RequestCheckpoint) -> None:
        self._group.checkpoint_requests.request(order)

    async def _on_resume(self, _order: orders.Resume) -> None:
        self._group.checkpoint_requests.withdraw()
        self._group.aligning.cancel()

    async def _on_stop(self, order: orders.Stop) -> None:
        await self._preparation.cancel()
        await self._finish_writing(0.0 if order.dump else FINISH_SECONDS)
        await self._group.stop(seconds=self._at_most(order.seconds), dump=order.dump)

    async def _on_done(self, _order: orders.Done) -> None:
        self._end_with(DONE)

    async def _on_fail(self, order: orders.Fail) -> None:
        lines = last_lines.shown(order.last_lines.split("\n"))
        output = LastLines(order.pod, order.rank, order.script_exit_code, lines) if lines else None
        self._end_with(Ending(order.exit_code, order.message, output))

    async def _on_leave(self, order: orders.Leave) -> None:
        self._save = order.save
        asyncio.get_running_loop().call_later(self._at_most(order.after), self._end_with, LEFT)

    async def _on_candidates(self, _order: orders.Candidates) -> None:
        self._preparation.begin()

    async def _on_host(self, _order: orders.Host) -> None:
        self._hosts = True
        self._starter.changed.set()

    async def _on_bind(self, order: orders.Bind) -> None:
        if order.group is not None:
            part = self._group.change_group(order.group)
            self._preparation.note_joined()
            self._use_store(part)

    async def _on_form(self, order: orders.Form) -> None:
        """Start a generation. The coordinator counts its processes as started, so a failure to start is reported."""
        await self._preparation.cancel()
        try:
            self._use_store(await self._group.form(order.group))
        except (OSError, RuntimeError, *wire.UNREADABLE) as error:
            why = f"{self.settings.pod_name} cannot start its processes: {error!r}"
            log.warning("%s", why, exc_info=True)
            number = int(order.group.get("part", order.group).get("number", 0))
            self._connection.report(reports.Failed(number, exit_code=1, message=why))

    def _use_store(self, part: Part) -> None:
        if self._stores.use(part):
            self._connection.remember(reports.StorePort(0))

    # -- leaving and ending -------------------------------------------------------------------------------------------

    def _on_sigterm(self) -> None:
        """Report that the pod leaves. The coordinator decides when, unless its decision takes too long."""
        if self._leave_by is not None:
            return
        seconds = self.settings.leave_seconds
        log.info("SIGTERM: the pod leaves within %.0f s", seconds)
        self._leave_by = time.monotonic() + seconds
        self._connection.report(reports.Leaving(seconds))
        asyncio.ensure_future(self._leave_alone())  # noqa: RUF006 (ends with the loop)

    async def _leave_alone(self) -> None:
        """Leave without the coordinator's order: when the time is over, or when no coordinator is connected."""
        assert self._leave_by is not None
        alone_since = time.monotonic()
        while time.monotonic() < self._leave_by and time.monotonic() < alone_since + ALONE_SECONDS:
            if self._connection.connected:
                alone_since = time.monotonic()
            await asyncio.sleep(0.05)
        self._end_with(LEFT)

    def _pids(self) -> list[int]:
        return self._group.pids()

    def _end_with(self, ending: Ending) -> None:
        if not self._ending.done():
            self._ending.set_result(ending)

    def _at_most(self, seconds: float) -> float:
        return seconds if self._leave_by is None else max(0.0, min(seconds, self._leave_by - time.monotonic()))

    async def _finish_writing(self, seconds: float) -> None:
        """Let the processes finish a checkpoint's file before they are stopped, within half of the remaining time."""
        self._group.expect_end()
        await self._group.aligning.finish_writing(0.5 * self._at_most(2 * seconds))

    async def _end(self, ending: Ending) -> Ending:
        """End the processes, and report that the pod ends. After its torchrun a command continues to its own end."""
        await self._preparation.cancel()
        if self._group.running:
            await self._ask_to_end(ending)
            await self._finish_writing(FINISH_SECONDS)
            await self._group.stop(seconds=self._at_most(5.0))
        self._connection.report(reports.Goodbye())
        if self.settings.is_master:
            await asyncio.sleep(FAREWELL_SECONDS)
        if self._command is None:
            return ending
        return await self._command.end(ending, self._at_most)

    async def _ask_to_end(self, ending: Ending) -> None:
        """Ask processes that use the library to end. If no other pod has their state, they write a checkpoint first."""
        if not self._trainees.in_place or ending is not LEFT:
            return
        self._group.expect_end()
        save = self._save or not self._connection.connected
        await self._trainees.leave(save=save, seconds=self._at_most(SAVE_SECONDS))
        running = [process.exited for process in self._group.processes if not process.exited.done()]
        if running:
            await asyncio.wait(running, timeout=self._at_most(LEAVE_SECONDS))

    # -- checkpoints, command and status ------------------------------------------------------------------------------

    async def _follow_checkpoints(self, watch: CheckpointWatch) -> None:
        await watch.open()
        problem, completed = "", 0
        try:
            while True:
                watch.changed.clear()
                if watch.problem != problem:
                    problem = watch.problem
                    self._connection.report(reports.CheckpointError(problem))
                    log.warning("checkpointPath: %s", problem or "it can be watched again")
                if watch.completed != completed:
                    completed = watch.completed
                    self._group.note_checkpoint()
                await watch.changed.wait()
        finally:
            await watch.close()

    async def _follow_command(self, command: Command) -> None:
        """Run the command. If it ends before its torchrun, the pod ends."""
        ending = await command.run()
        self._end_with(ending)
        await asyncio.Event().wait()

    async def _serve_status(self) -> None:
        try:
            await self._server.open(self.settings.status_port)
        except OSError as error:
            log.warning("no /status: %s", error)
        try:
            await asyncio.Event().wait()
        finally:
            with contextlib.suppress(OSError):
                await self._server.close()

    def status(self) -> dict[str, Any]:
        """The content of /status: the coordinator's status in the master's pod, this pod's own state elsewhere."""
        part, group = self._group.part, self._group
        own: dict[str, Any] = {
            "pod": self.settings.pod_name,
            "warm": self._starter.warm,
            "problem": self._starter.problem,
        }
        if self._unused_flags:
            own["unusedFlags"] = self._unused_flags
        if self._watch is not None:
            own["checkpoints"] = self._watch.completed
        if self._coordinator_status:
            return {
                **self._coordinator_status,
                "training": {**self._coordinator_status.get("training", {}), **self._training_status()},
                **own,
            }
        return {
            "contract": contract.VERSION,
            "epoch": self.settings.epoch,
            "generation": part.number if part and group.running else 0,
            "wish": 0,
            "state": "Running" if group.running else "Waiting",
            "reason": self._starter.problem,
            "members": [self.settings.pod_name] if part and group.running else [],
            "worldSize": part.world_size if part and group.running else 0,
            "failures": 0,
            "training": {**({"step": part.step + group.steps} if part else {}), **self._training_status()},
            "changes": [],
            **own,
        }

    def _training_status(self) -> dict[str, Any]:
        """The last progress that this pod's first process reported; it may have no process between two groups."""
        progress = self._trainees.progress()
        self._training = (training_status(progress) if progress is not None else {}) or self._training
        return {**self._training, **self._reports.last.to_status()}


def _too_old(python: Python) -> str:
    return TOO_OLD.format(python.executable, *python.version, *contract.OLDEST_PYTHON)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel all tasks until they end. Before Python 3.12 `asyncio.wait_for` may swallow a cancellation."""
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=CANCEL_SECONDS)
