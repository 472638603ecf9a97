"""The training processes of this pod: starts them for a generation, watches them, and stops them for the next one."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_worker import contract
from elastic_worker.coordinator.part import Part, read_part
from elastic_worker.launcher.aligning import Aligning
from elastic_worker.launcher.checkpoint_requests import CheckpointRequests
from elastic_worker.launcher.describe import is_consequence, what_happened
from elastic_worker.launcher.trainees import Trainees
from elastic_worker.logs import brief
from elastic_worker.processes import leftover
from elastic_worker.protocol.orders import GenerationRecord
from elastic_worker.protocol.reports import (
    Checkpoint,
    Failed,
    Finished,
    Idle,
    LastCheckpointStep,
    Runs,
    Started,
    Step,
    Stepped,
    Stopped,
    Unkillable,
)
from elastic_worker.settings import Settings

if TYPE_CHECKING:
    from elastic_worker.checkpoint.watch import CheckpointWatch
    from elastic_worker.processes.program import Program
    from elastic_worker.processes.starter import Starter, TrainingProcess

log = logging.getLogger(__name__)

PACKAGE_FOLDER = Path(contract.__file__).resolve().parents[1]
FAILURE_POLL_SECONDS = 0.05
END_SECONDS = 5.0
"""Time for a failed process to end by itself before another one takes its place and its GPU."""
DUMP_SECONDS = 0.5
"""Time for faulthandler to print the stacks."""


class WorkerGroup:
    """The training processes of one pod, one for each local rank: what torchelastic calls a worker group.

    `report` sends to the coordinator. `remember_generation` keeps the present generation for a restarted coordinator.
    `more_environ` returns further variables of a process, from those that the pod gives it. `program` must be set
    before `form`. `part` is this pod's part of the present group, None outside of one.
    """

    def __init__(
        self,
        settings: Settings,
        starter: Starter,
        report: Callable[..., None],
        *,
        remember_generation: Callable[[GenerationRecord], None],
        environ: Mapping[str, str],
        trainees: Trainees,
        watch: CheckpointWatch | None = None,
        more_environ: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _given: {},
    ) -> None:
        self.settings, self.starter, self.report, self.environ, self.watch = settings, starter, report, environ, watch
        self.trainees, self._remember_generation, self._more_environ = trainees, remember_generation, more_environ
        self.program: Program | None = None
        self.directory = str(Path.cwd())
        self.part: Part | None = None
        self.size = settings.processes
        self.processes: list[TrainingProcess] = []
        self._by_rank: dict[int, TrainingProcess] = {}
        self._failed: list[TrainingProcess] = []
        self.aligning = Aligning(watch, self._alive, report, self.note_checkpoint)
        self.checkpoint_requests = CheckpointRequests(self._alive, report)
        self.steps_saved: int | None = None
        self.last_step_at: float | None = None
        self._stopping = False
        self._watchers: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self.on_failed_start: Callable[[str], None] = log.warning
        """Called with the reason when a process ends before it was in a group."""

    @property
    def running(self) -> bool:
        """Whether the pod has processes of a generation, ended ones included."""
        return bool(self.processes)

    @property
    def steps(self) -> int:
        """Optimizer steps of the present processes: the most that any of them has done."""
        return max((process.steps.count for process in self.processes), default=0)

    @property
    def step(self) -> int:
        """Optimizer step of the whole training: the library's, else the step at the group's start plus `steps`."""
        progress = self.trainees.progress()
        if progress is not None and progress.step is not None:
            return int(progress.step)
        return (self.part.step if self.part else 0) + self.steps

    def pids(self) -> list[int]:
        """Process ids of the processes that still run."""
        return [process.pid for process in self._alive()]

    def _alive(self) -> list[TrainingProcess]:
        return [process for process in self.processes if not process.exited.done()]

    # -- orders of the coordinator -------------------------------------------------------------------------------------

    async def form(self, record: GenerationRecord) -> Part:
        """Stop the processes of an earlier generation, and start those of this one. Returns this pod's part of it.

        Raises wire.UNREADABLE if `record` cannot be read, ValueError if this pod is not in it, and OSError if a process
        cannot be started.
        """
        part = read_part(record, self.settings.pod_uid)
        if part.place < 0:
            raise ValueError(f"this pod is not in generation {part.number}")
        if self.running:
            await self.stop(seconds=5.0)
        assert self.program is not None, "a pod is not warm before it knows what to run"
        self.part, self._stopping = part, False
        self.size = part.processes
        self.steps_saved = 0 if self.watch is not None and self.watch.completed else None
        began = time.monotonic()
        for local_rank in range(self.size):
            await self._start(local_rank, self._environ_of(part, local_rank))
        self._watchers.append(asyncio.ensure_future(self._watch_first_step(part)))
        log.info("generation %d: %d processes started in %.3f s", part.number, len(self.processes), _since(began))
        self._remember_generation(record)
        number = part.number
        self.report(Started(number), Runs(number), Finished(0), Step(part.step), Idle(0.0))
        return part

    async def start_missing(self) -> None:
        """Start processes for the local ranks that have none, so that they can join a training group.

        Raises OSError if one cannot be started.
        """
        assert self.program is not None, "a pod is not warm before it knows what to run"
        self._stopping = False
        failed, self._failed = self._failed, []
        ended = [process for process in self.processes if process in failed or process.exited.done()]
        if unkillable := await self._end(ended, END_SECONDS):
            self.report(Unkillable(unkillable))
            return
        running = {rank for rank, process in self._by_rank.items() if not process.exited.done()}
        self.processes = [process for process in self.processes if not process.exited.done()]
        missing = [rank for rank in range(self.size) if rank not in running]
        for local_rank in missing:
            await self._start(local_rank, self._environ_of(None, local_rank))
        log.info("%d processes started to join a group", len(missing))

    def expect_end(self) -> None:
        """Note that the processes are about to end on request, so that their ends are no failures."""
        self._stopping = True

    def change_group(self, record: GenerationRecord) -> Part:
        """Note that the running processes switch to this group, or to none. Returns this pod's part of it."""
        part = read_part(record, self.settings.pod_uid)
        if part.place < 0:
            self.part = None
            self.report(Runs(0))
        else:
            self.part = part
            self._remember_generation(record)
            self.report(Runs(part.number), Finished(0))
        return part

    async def _start(self, local_rank: int, environ: dict[str, str]) -> None:
        assert self.program is not None
        process = await self.starter.start(
            self.program.of_process(local_rank), environ=environ, directory=self.directory, local_rank=local_rank
        )
        self.processes.append(process)
        self._by_rank[local_rank] = process
        self._watchers.append(asyncio.ensure_future(self._watch_exit(process, local_rank)))

    async def stop(self, *, seconds: float, dump: bool = False) -> None:
        """End all processes, with SIGKILL after `seconds`. With `dump` they print their stacks first."""
        self._stopping = True
        number, step = self.part.number if self.part else 0, self.step
        processes, self.processes, self._by_rank, self._failed = self.processes, [], {}, []
        self.checkpoint_requests.withdraw()
        self.aligning.cancel()  # no thawed process does another step, since all are ended now
        lost = self._count_lost(processes)
        if dump:
            for process in processes:
                process.dump_stacks()
            await asyncio.sleep(DUMP_SECONDS if any(not p.exited.done() for p in processes) else 0)
        unkillable = await self._end(processes, seconds)
        for watcher in self._watchers:
            watcher.cancel()
        self._watchers = []
        self.trainees.clear()
        reports = [Unkillable(unkillable)] if unkillable else []
        self.report(Stopped(number, step, lost, unkillable), Runs(0), Step(step), *reports)

    async def _end(self, processes: list[TrainingProcess], seconds: float) -> str:
        """End these processes and their sessions. Returns a sentence on those that SIGKILL does not end, "" if none."""
        await asyncio.gather(*(process.stop(seconds) for process in processes))
        await leftover.end([process.pid for process in processes if process.exited.done()])
        return self._await_in_background(processes)

    def _await_in_background(self, processes: list[TrainingProcess]) -> str:
        """A sentence on the processes that have not ended, "" if all have. They are waited for in the background.

        No other process takes their place before they end (105).
        """
        running = [process for process in processes if not process.exited.done()]
        if not running:
            return ""
        names = ", ".join(f"process {process.pid} (state {process.state()})" for process in running)
        log.error("%s cannot be ended by SIGKILL: it hangs in the kernel", names)
        self._ending = asyncio.ensure_future(self._await_end(running))
        return f"{names} cannot be ended by SIGKILL"

    async def _await_end(self, processes: list[TrainingProcess]) -> None:
        """Wait for the end of processes that SIGKILL did not end, and report it: this pod can then train again."""
        await asyncio.wait({process.exited for process in processes})
        await leftover.end([process.pid for process in processes])
        log.info("all processes have ended")
        self.report(Unkillable(""))

    # -- watching the processes ----------------------------------------------------------------------------------------

    async def _watch_exit(self, process: TrainingProcess, local_rank: int) -> None:
        code = await _end_of(process)
        part = self.part
        if self._stopping:
            return
        if code:
            self._failed.append(process)
            self.trainees.remove(local_rank)
        if part is None:
            why = what_happened(local_rank, code, process.error)
            log.warning("%s, before it was in a group", brief(why))
            self.on_failed_start(why)
            return
        rank = part.first_rank + local_rank
        if code == 0:
            log.info("rank %d has finished", rank)
            if all(p.exited.done() and p.exited.result() == 0 for p in self.processes):
                self.report(Finished(part.number))
            return
        why = what_happened(rank, code, process.error)
        log.warning("%s", brief(why))
        last_lines = "\n".join(process.last_lines())
        self.report(Failed(part.number, rank, code, why, is_consequence=is_consequence(why), last_lines=last_lines))

    async def _watch_first_step(self, part: Part) -> None:
        """Report the generation's first step, and the seconds since the last step before it."""
        first: list[float] = []
        wait = 0.01
        while not first:
            await asyncio.sleep(wait)
            wait = min(1.1 * wait, 1.0)
            first = [p.steps.first for p in self.processes if p.steps.first is not None]
        last_step_at, self.last_step_at = self.last_step_at, None
        self.report(Stepped(part.number, None if last_step_at is None else round(min(first) - last_step_at, 4)))

    def note_checkpoint(self) -> None:
        """Note that a checkpoint was just completed, and report it."""
        self.steps_saved = self.steps
        saved = (self.part.step if self.part else 0) + self.steps
        self.report(Checkpoint(), LastCheckpointStep(saved))

    def _count_lost(self, processes: list[TrainingProcess]) -> int | None:
        """Steps since the last checkpoint, which will be done again; None if this pod does not see the checkpoints."""
        steps = [process.steps for process in processes]
        self.last_step_at = max((s.last for s in steps if s.last is not None), default=self.last_step_at)
        if self.steps_saved is None or not steps:
            return None
        return max(0, max(s.count for s in steps) - self.steps_saved)

    # -- the environment of a process ----------------------------------------------------------------------------------

    def _alone(self) -> Part:
        host, size = self.settings.address, self.size
        return Part(0, self.settings.epoch, host=host, world_size=size, pods=1, place=0, first_rank=0, processes=size)

    def _environ_of(self, part: Part | None, local_rank: int) -> dict[str, str]:
        """The environment of one process: ours, and the variables that torchrun sets.

        Without a group (`part` is None) they are those of a pod that trains alone.
        """
        part = part or self._alone()
        rank = part.first_rank + local_rank
        values = {
            "RANK": rank,
            "LOCAL_RANK": local_rank,
            "WORLD_SIZE": part.world_size,
            "LOCAL_WORLD_SIZE": part.processes,
            "GROUP_RANK": part.place,
            "GROUP_WORLD_SIZE": part.pods,
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": part.world_size,
            "ROLE_NAME": "default",
            "MASTER_ADDR": part.host,
            "MASTER_PORT": part.store_port,
            "TORCHELASTIC_RUN_ID": f"{self.settings.job_uid}-{self.settings.incarnation}",
            "TORCHELASTIC_RESTART_COUNT": part.number,
            "TORCHELASTIC_MAX_RESTARTS": 2**31 - 1,
            "TORCHELASTIC_USE_AGENT_STORE": True,
            contract.ENV_GENERATION: part.number,
            contract.ENV_MASTER_EPOCH: part.epoch,
            contract.ENV_LIBRARY: self.trainees.path,
        }
        inherited = {key: value for key, value in self.environ.items() if key != contract.ENV_TOKEN}
        # Data loaders' workers that are not forked must find the package that the script has imported.
        paths = [path for path in (inherited.get("PYTHONPATH", ""), str(PACKAGE_FOLDER)) if path]
        inherited["PYTHONPATH"] = os.pathsep.join(paths)
        if part.processes > 1:
            # torchrun's own default: processes that each use all cores slow each other down.
            inherited.setdefault("OMP_NUM_THREADS", "1")
        return {**inherited, **self._more_environ(inherited), **{key: str(value) for key, value in values.items()}}


async def _end_of(process: TrainingProcess) -> int:
    """Wait for its end, and return its exit code; 1 already at an uncaught exception, whose end may take a second."""
    while not process.exited.done() and process.error is None:
        await asyncio.wait({process.exited}, timeout=FAILURE_POLL_SECONDS)
    return process.exited.result() if process.exited.done() else 1


def _since(time_: float) -> float:
    return time.monotonic() - time_
