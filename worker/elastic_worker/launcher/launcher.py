"""One pod: does what the coordinator says, tells it what happens here, and leaves when it is told to go.

The parts: `Starter` starts processes, `Group` has those of the present generation, `Membership` is the line to the
coordinator, which the master's pod also runs. Here they meet, and here it is decided how the pod ends.
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

from elastic_worker import contract, wire
from elastic_worker.checkpoint.watch import CheckpointWatch
from elastic_worker.coordinator.part import Part
from elastic_worker.launcher.arguments import Arguments
from elastic_worker.launcher.command import Command
from elastic_worker.launcher.coordinating import CoordinatorProcess
from elastic_worker.launcher.ending import DONE, LEFT, Ending
from elastic_worker.launcher.group import Group
from elastic_worker.launcher.health import Health
from elastic_worker.launcher.membership import Membership
from elastic_worker.launcher.metrics import Totals, render
from elastic_worker.launcher.readiness import Readiness
from elastic_worker.launcher.server import StatusServer
from elastic_worker.launcher.sockets import remove_folder_of, short_path
from elastic_worker.launcher.stores import Stores
from elastic_worker.launcher.trainees import Trainees
from elastic_worker.launcher.training import shown
from elastic_worker.processes import standin, torchrun
from elastic_worker.processes.children import Children
from elastic_worker.processes.starter import Starter
from elastic_worker.protocol import orders, reports
from elastic_worker.protocol.codec import Message
from elastic_worker.protocol.standin import Python, Run
from elastic_worker.settings import Settings

log = logging.getLogger(__name__)

ALONE_SECONDS = 2.0
"""A pod that is told to go waits so long for a coordinator, while there is none."""
CANCEL_SECONDS = 0.2
SAVE_SECONDS = 600.0
"""For a checkpoint before the pod leaves; less if its grace period is shorter."""
FINISH_SECONDS = 15.0
"""For the end of a file of a checkpoint that is being written when the processes are stopped."""
LEAVE_SECONDS = 1.0
"""What processes that were asked to end get before they are sent SIGTERM."""
TOO_OLD = "torchrun was called by {}, which is Python {}.{}, and {}.{} or later is needed in Elastic mode"
FAREWELL_SECONDS = 0.5
"""The master's last words to the others are on their way."""


class Launcher:
    """Runs one pod, with private files in `scratch`."""

    def __init__(self, settings: Settings, given: Arguments, environ: Mapping[str, str], scratch: Path) -> None:
        self.settings, self.given, self.environ, self.scratch = settings, given, dict(environ), scratch
        self._ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._leave_by: float | None = None
        self._told: dict[str, Any] = {}
        self._training: dict[str, Any] = {}
        self._totals = Totals()
        self._children = Children()
        self._starter = Starter(
            children=self._children,
            preload=settings.preload,
            warm=settings.warm,
            count_steps=settings.count_steps,
            folder=scratch,
        )
        self._membership = Membership(settings, self._hear)
        path, marker = settings.checkpoint_path, settings.checkpoint_complete
        self._watch = CheckpointWatch(Path(path), writers=self._pids, marker=marker) if path else None
        self._trainees = Trainees(
            settings.pod_uid,
            short_path(scratch, "library.sock"),
            tell=self._membership.tell,
            size=lambda: self._group.size,
        )
        self._group = Group(
            settings,
            self._starter,
            self._membership.tell,
            know_group=self._membership.know_group,
            environ=self.environ,
            trainees=self._trainees,
            watch=self._watch,
        )
        self._readiness = Readiness(self._group, lambda told: self._end_with(Ending(1, told)))
        self._membership.on_line = self._trainees.coordinator_is
        self._save = False
        self._command: Command | None = None
        if given.is_command:
            self._command = Command(
                given.words, self.environ, scratch, children=self._children, take=self._take_program
            )
        self._stores = Stores(self._starter, self._starter.changed.set)
        self._hosts = settings.is_master
        self._handlers: dict[type[Message], Callable[[Any], Awaitable[None]]] = {
            orders.Status: self._take_status,
            orders.Form: self._form,
            orders.Align: self._align,
            orders.StandStill: self._stand_still,
            orders.AskSave: self._ask_save,
            orders.Save: self._save_now,
            orders.Resume: self._resume,
            orders.Stop: self._stop,
            orders.Done: self._done,
            orders.Fail: self._fail,
            orders.Leave: self._leave,
            orders.Candidates: self._get_ready,
            orders.Host: self._host,
            orders.Bind: self._go_over,
        }

    async def run(self, told_to_go: Callable[[], bool]) -> Ending:
        """Until the pod ends. Raises torchrun.UsageError where what is to run cannot be read."""
        if self._command is None:
            self._take_words(self.given.words)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._go)
        if told_to_go():
            self._go()
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
        """What runs beside each other; none of them ends by itself."""
        parts = [
            self._become_warm(),
            self._membership.run(),
            Health(self._group, self._membership).run(),
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

    # -- becoming able ------------------------------------------------------------------------------------------------

    def _take_words(self, words: Any) -> None:
        """What to run, from torchrun's command line."""
        parsed = torchrun.parse(list(words))
        for flag, why in parsed.ignored:
            log.info("%s is not used: %s", flag, why)
        self._group.program = parsed.program
        if isinstance(parsed.nproc, int):
            self._membership.tell(reports.Processes(parsed.nproc))
            self._group.size = parsed.nproc
        elif parsed.nproc is not None:
            log.info("--nproc-per-node=%s is not used: the pod has %d processes", parsed.nproc, self._group.size)

    async def _take_program(self, request: Run) -> None:
        """A command has called torchrun, perhaps that of another python, which then runs the script."""
        if request.python is not None and tuple(request.python.version) < contract.OLDEST_PYTHON:
            raise torchrun.UsageError(_too_old(request.python))
        self._take_words(request.argv)
        self._group.directory, self._group.environ = request.directory, request.environ
        another = request.python if request.python is not None and not standin.is_ours(request.python) else None
        self._starter.expect(request.environ, python=another.executable if another is not None else "")
        self._starter.changed.set()

    async def _become_warm(self) -> None:
        """Tell whether processes can be started at once; a host also has a store for them to meet in."""
        await self._starter.open()
        while True:
            self._starter.changed.clear()
            if self._starter.warm and self._group.program is not None:
                if self._hosts:
                    self._membership.tell(reports.StorePort(await self._stores.ensure()))
                self._membership.tell(reports.Warm(True))
            else:
                self._membership.tell(reports.Warm(False))
            await self._starter.changed.wait()

    # -- the coordinator's words --------------------------------------------------------------------------------------

    async def _hear(self, line: wire.Message) -> None:
        for kind, handle in self._handlers.items():
            if kind.key in line:
                await handle(kind.from_json(line))
        self._trainees.hear(line)

    async def _take_status(self, told: orders.Status) -> None:
        self._told = told.status
        self._totals.add(self._told)

    async def _align(self, told: orders.Align) -> None:
        self._group.aligning.begin(told.seconds, told.last_call)

    async def _stand_still(self, told: orders.StandStill) -> None:
        self._group.aligning.stand_still(told.round, marked=told.marked)

    async def _ask_save(self, told: orders.AskSave) -> None:
        self._group.saving.propose(told)

    async def _save_now(self, told: orders.Save) -> None:
        self._group.saving.ask(told)

    async def _resume(self, _told: orders.Resume) -> None:
        self._group.saving.withdraw()
        self._group.aligning.cancel()

    async def _stop(self, told: orders.Stop) -> None:
        await self._readiness.cancel()
        await self._finish_writing(0.0 if told.dump else FINISH_SECONDS)
        await self._group.stop(seconds=self._at_most(told.seconds), dump=told.dump)

    async def _done(self, _told: orders.Done) -> None:
        self._end_with(DONE)

    async def _fail(self, told: orders.Fail) -> None:
        self._end_with(Ending(told.exit_code, told.message))

    async def _leave(self, told: orders.Leave) -> None:
        self._save = told.save
        asyncio.get_running_loop().call_later(self._at_most(told.after), self._end_with, LEFT)

    async def _get_ready(self, _told: orders.Candidates) -> None:
        self._readiness.begin()

    async def _host(self, _told: orders.Host) -> None:
        self._hosts = True
        self._starter.changed.set()

    async def _go_over(self, told: orders.Bind) -> None:
        if told.group is not None:
            record = self._group.go_over(told.group)
            self._readiness.taken_over()
            self._use_store(record)

    async def _form(self, told: orders.Form) -> None:
        """The coordinator takes processes for started, so it is told of whatever keeps them from it."""
        await self._readiness.cancel()
        try:
            self._use_store(await self._group.form(told.group))
        except (OSError, RuntimeError, *wire.UNREADABLE) as error:
            why = f"{self.settings.pod_name} cannot start its processes: {error!r}"
            log.warning("%s", why, exc_info=True)
            number = int(told.group.get("part", told.group).get("number", 0))
            self._membership.tell(reports.Failed(number, exit_code=1, message=why))

    def _use_store(self, record: Part) -> None:
        if self._stores.use(record):
            self._membership.know(reports.StorePort(0))

    # -- leaving and ending -------------------------------------------------------------------------------------------

    def _go(self) -> None:
        """The pod was told to go; the coordinator decides when, unless it takes too long."""
        if self._leave_by is not None:
            return
        seconds = self.settings.leave_seconds
        log.info("told to go: at most %.0f s are left", seconds)
        self._leave_by = time.monotonic() + seconds
        self._membership.tell(reports.Leaving(seconds))
        asyncio.ensure_future(self._leave_alone())  # noqa: RUF006 (ends with the loop)

    async def _leave_alone(self) -> None:
        """Leave without the coordinator's word: when time is over, or nobody is there to say it."""
        assert self._leave_by is not None
        alone_since = time.monotonic()
        while time.monotonic() < self._leave_by and time.monotonic() < alone_since + ALONE_SECONDS:
            if self._membership.connected:
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
        """Before the processes are stopped; at most half of what the pod has left."""
        self._group.expect_end()
        await self._group.aligning.finish_writing(0.5 * self._at_most(2 * seconds))

    async def _end(self, ending: Ending) -> Ending:
        """End the processes, say goodbye; a command ends by itself after its torchrun has."""
        await self._readiness.cancel()
        if self._group.running:
            await self._ask_to_end(ending)
            await self._finish_writing(FINISH_SECONDS)
            await self._group.stop(seconds=self._at_most(5.0))
        self._membership.tell(reports.Goodbye())
        if self.settings.is_master:
            await asyncio.sleep(FAREWELL_SECONDS)
        if self._command is None:
            return ending
        return await self._command.end(ending, self._at_most)

    async def _ask_to_end(self, ending: Ending) -> None:
        """Processes that use the library end as scripts do; where nobody else has the state, it is written first."""
        if not self._trainees.in_place or ending is not LEFT:
            return
        self._group.expect_end()
        save = self._save or not self._membership.connected
        await self._trainees.leave(save=save, seconds=self._at_most(SAVE_SECONDS))
        running = [process.exited for process in self._group.processes if not process.exited.done()]
        if running:
            await asyncio.wait(running, timeout=self._at_most(LEAVE_SECONDS))

    # -- what happens here --------------------------------------------------------------------------------------------

    async def _follow_checkpoints(self, watch: CheckpointWatch) -> None:
        await watch.open()
        problem, completed = "", 0
        try:
            while True:
                watch.changed.clear()
                if watch.problem != problem:
                    problem = watch.problem
                    self._membership.tell(reports.CheckpointError(problem))
                    log.warning("checkpointPath: %s", problem or "it can be watched again")
                if watch.completed != completed:
                    completed = watch.completed
                    self._group.note_checkpoint()
                await watch.changed.wait()
        finally:
            await watch.close()

    async def _follow_command(self, command: Command) -> None:
        """A command that ends before its torchrun was told to ends the pod."""
        ending = await command.run()
        self._end_with(ending)
        await asyncio.Event().wait()

    async def _serve_status(self) -> None:
        server = StatusServer(status=self.status, metrics=lambda: render(self.status(), self._totals))
        try:
            await server.open(self.settings.status_port)
        except OSError as error:
            log.warning("no /status: %s", error)
        try:
            await asyncio.Event().wait()
        finally:
            with contextlib.suppress(OSError):
                await server.close()

    def status(self) -> dict[str, Any]:
        """What /status shows: in the master's pod all the coordinator knows, elsewhere what is known here."""
        record, group = self._group.record, self._group
        own: dict[str, Any] = {
            "pod": self.settings.pod_name,
            "warm": self._starter.warm,
            "problem": self._starter.problem,
        }
        if self._watch is not None:
            own["checkpoints"] = self._watch.completed
        if self._told:
            return {**self._told, "training": {**self._told.get("training", {}), **self._how_it_goes()}, **own}
        return {
            "contract": contract.VERSION,
            "epoch": self.settings.epoch,
            "generation": record.number if record and group.running else 0,
            "wish": 0,
            "state": "Running" if group.running else "Waiting",
            "reason": self._starter.problem,
            "members": [self.settings.pod_name] if record and group.running else [],
            "worldSize": record.world_size if record and group.running else 0,
            "failures": 0,
            "training": {**({"step": record.step + group.steps} if record else {}), **self._how_it_goes()},
            "changes": [],
            **own,
        }

    def _how_it_goes(self) -> dict[str, Any]:
        """What the first process here says of the training, or said last: between two groups there may be none."""
        said = self._trainees.progress()
        self._training = (shown(said) if said is not None else {}) or self._training
        return self._training


def _too_old(python: Python) -> str:
    return TOO_OLD.format(python.executable, *python.version, *contract.OLDEST_PYTHON)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    """End them all. Before Python 3.12 `asyncio.wait_for` may swallow that a task is cancelled: it is told again."""
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=CANCEL_SECONDS)
