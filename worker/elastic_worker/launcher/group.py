"""The training processes of this pod, as one: started for a generation, stopped for the next, watched in between."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastic_worker import contract
from elastic_worker.coordinator.part import Part, read_part
from elastic_worker.launcher.aligning import Aligning
from elastic_worker.launcher.checkpoint_requests import CheckpointRequests
from elastic_worker.launcher.describe import is_consequence, what_happened
from elastic_worker.launcher.trainees import Trainees
from elastic_worker.logs import brief
from elastic_worker.processes import leftover
from elastic_worker.protocol import orders
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
"""What a process that has failed gets to end by itself before another takes its place, and its GPU."""
DUMP_SECONDS = 0.5
"""What faulthandler gets to print the stacks."""


class Group:
    """`tell` reaches the coordinator; `know_group` what it hears of a group when it starts anew.

    `program` is what to run; it must be set before `form`.
    """

    def __init__(
        self,
        settings: Settings,
        starter: Starter,
        tell: Callable[..., None],
        *,
        know_group: Callable[[orders.Group], None],
        environ: Mapping[str, str],
        trainees: Trainees,
        watch: CheckpointWatch | None = None,
    ) -> None:
        self.settings, self.starter, self.tell, self.environ, self.watch = settings, starter, tell, environ, watch
        self.trainees, self._know_group = trainees, know_group
        self.program: Program | None = None
        self.directory = str(Path.cwd())
        self.record: Part | None = None
        self.size = settings.processes
        self.processes: list[TrainingProcess] = []
        self._by_rank: dict[int, TrainingProcess] = {}
        self._failed: list[TrainingProcess] = []
        self.aligning = Aligning(watch, self._living, tell, self.note_checkpoint)
        self.checkpoint_requests = CheckpointRequests(self._living, tell)
        self.steps_saved: int | None = None
        self.last_step_at: float | None = None
        self._stopping = False
        self._watchers: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self.unready: Callable[[str], None] = log.warning
        """Told when a process ends before it was in a group."""

    @property
    def running(self) -> bool:
        """Whether processes of a generation are there, ended ones included."""
        return bool(self.processes)

    @property
    def steps(self) -> int:
        """Optimizer steps of the present processes."""
        return max((process.steps.count for process in self.processes), default=0)

    @property
    def step(self) -> int:
        """Of the whole training: what the library says, else what was counted since the group formed."""
        said = self.trainees.progress()
        if said is not None and said.step is not None:
            return int(said.step)
        return (self.record.step if self.record else 0) + self.steps

    def pids(self) -> list[int]:
        """Of the processes that still run."""
        return [process.pid for process in self._living()]

    def _living(self) -> list[TrainingProcess]:
        return [process for process in self.processes if not process.exited.done()]

    # -- what the coordinator asks for ---------------------------------------------------------------------------------

    async def form(self, told: Mapping[str, Any]) -> Part:
        """Start the processes of a generation; those of another are stopped first. Raises wire.UNREADABLE."""
        record = read_part(told, self.settings.pod_uid)
        if record.place < 0:
            raise ValueError(f"this pod is not in generation {record.number}")
        if self.running:
            await self.stop(seconds=5.0)
        assert self.program is not None, "a pod is not warm before it knows what to run"
        self.record, self._stopping = record, False
        self.size = record.processes
        self.steps_saved = 0 if self.watch is not None and self.watch.completed else None
        began = time.monotonic()
        for local_rank in range(self.size):
            await self._start(local_rank, self._environ_of(record, local_rank))
        self._watchers.append(asyncio.ensure_future(self._watch_first_step(record)))
        log.info("generation %d: %d processes started in %.3f s", record.number, len(self.processes), _since(began))
        self._know_group(dict(told))
        number = record.number
        self.tell(Started(number), Runs(number), Finished(0), Step(record.step), Idle(0.0))
        return record

    async def get_ready(self) -> None:
        """Start the processes that are missing, to be brought into a group that trains."""
        assert self.program is not None, "a pod is not warm before it knows what to run"
        self._stopping = False
        failed, self._failed = self._failed, []
        gone = [process for process in self.processes if process in failed or process.exited.done()]
        if unkillable := await self._end(gone, END_SECONDS):
            self.tell(Unkillable(unkillable))
            return
        running = {rank for rank, process in self._by_rank.items() if not process.exited.done()}
        self.processes = [process for process in self.processes if not process.exited.done()]
        missing = [rank for rank in range(self.size) if rank not in running]
        for local_rank in missing:
            await self._start(local_rank, self._environ_of(None, local_rank))
        log.info("%d processes started to join a group", len(missing))

    def expect_end(self) -> None:
        """The processes are about to end, as they were told."""
        self._stopping = True

    def go_over(self, told: Mapping[str, Any]) -> Part:
        """The processes are about to be in another group, without being started again, or in none."""
        record = read_part(told, self.settings.pod_uid)
        if record.place < 0:
            self.record = None
            self.tell(Runs(0))
        else:
            self.record = record
            self._know_group(dict(told))
            self.tell(Runs(record.number), Finished(0))
        return record

    async def _start(self, local_rank: int, environ: dict[str, str]) -> None:
        assert self.program is not None
        process = await self.starter.start(
            self.program.of_process(local_rank), environ=environ, directory=self.directory, local_rank=local_rank
        )
        self.processes.append(process)
        self._by_rank[local_rank] = process
        self._watchers.append(asyncio.ensure_future(self._watch_exit(process, local_rank)))

    async def stop(self, *, seconds: float, dump: bool = False) -> None:
        """End all processes; after `seconds` by force."""
        self._stopping = True
        number, step = self.record.number if self.record else 0, self.step
        processes, self.processes, self._by_rank, self._failed = self.processes, [], {}, []
        self.checkpoint_requests.withdraw()
        self.aligning.cancel()  # none of them runs on between now and its end
        lost = self._count_lost(processes)
        if dump:
            for process in processes:
                process.dump_stacks()
            await asyncio.sleep(DUMP_SECONDS if any(not p.exited.done() for p in processes) else 0)
        unkillable = await self._end(processes, seconds)
        for watcher in self._watchers:
            watcher.cancel()
        self._watchers = []
        self.trainees.forget()
        left = [Unkillable(unkillable)] if unkillable else []
        self.tell(Stopped(number, step, lost, unkillable), Runs(0), Step(step), *left)

    async def _end(self, processes: list[TrainingProcess], seconds: float) -> str:
        """End them with all that they started; what is told of those that SIGKILL does not end, "" if it ends all."""
        await asyncio.gather(*(process.stop(seconds) for process in processes))
        await leftover.end([process.pid for process in processes if process.exited.done()])
        return self._give_up(processes)

    def _give_up(self, processes: list[TrainingProcess]) -> str:
        """What is told of those that do not end; "" if all have. No other takes their place before they do (105)."""
        left = [process for process in processes if not process.exited.done()]
        if not left:
            return ""
        told = ", ".join(f"process {process.pid} (state {process.state()})" for process in left)
        log.error("%s cannot be ended by SIGKILL: it hangs in the kernel", told)
        self._ending = asyncio.ensure_future(self._await_end(left))
        return f"{told} cannot be ended by SIGKILL"

    async def _await_end(self, processes: list[TrainingProcess]) -> None:
        """A pod that was given up may train again when they have ended after all."""
        await asyncio.wait({process.exited for process in processes})
        await leftover.end([process.pid for process in processes])
        log.info("all processes have ended after all")
        self.tell(Unkillable(""))

    # -- what is seen of the processes ---------------------------------------------------------------------------------

    async def _watch_exit(self, process: TrainingProcess, local_rank: int) -> None:
        code = await _end_of(process)
        record = self.record
        if self._stopping:
            return
        if code:
            self._failed.append(process)
            self.trainees.gone(local_rank)
        if record is None:
            told = what_happened(local_rank, code, process.error)
            log.warning("%s, before it was in a group", brief(told))
            self.unready(told)
            return
        rank = record.first_rank + local_rank
        if code == 0:
            log.info("rank %d has finished", rank)
            if all(p.exited.done() and p.exited.result() == 0 for p in self.processes):
                self.tell(Finished(record.number))
            return
        told = what_happened(rank, code, process.error)
        log.warning("%s", brief(told))
        self.tell(Failed(record.number, rank, code, told, is_consequence=is_consequence(told)))

    async def _watch_first_step(self, record: Part) -> None:
        """Tell of the first step, and how long ago the last one of before was."""
        first: list[float] = []
        wait = 0.01
        while not first:
            await asyncio.sleep(wait)
            wait = min(1.1 * wait, 1.0)
            first = [p.steps.first for p in self.processes if p.steps.first is not None]
        before, self.last_step_at = self.last_step_at, None
        self.tell(Stepped(record.number, None if before is None else round(min(first) - before, 4)))

    def note_checkpoint(self) -> None:
        """A checkpoint was just completed."""
        self.steps_saved = self.steps
        saved = (self.record.step if self.record else 0) + self.steps
        self.tell(Checkpoint(), LastCheckpointStep(saved))

    def _count_lost(self, processes: list[TrainingProcess]) -> int | None:
        """Steps that will be done again; None where this pod does not see the checkpoints."""
        steps = [process.steps for process in processes]
        self.last_step_at = max((s.last for s in steps if s.last is not None), default=self.last_step_at)
        if self.steps_saved is None or not steps:
            return None
        return max(0, max(s.count for s in steps) - self.steps_saved)

    # -- what a process is told ----------------------------------------------------------------------------------------

    def _alone(self) -> Part:
        host, size = self.settings.address, self.size
        return Part(0, self.settings.epoch, host=host, world_size=size, pods=1, place=0, first_rank=0, processes=size)

    def _environ_of(self, record: Part | None, local_rank: int) -> dict[str, str]:
        """The variables that torchrun sets, for one process; without a group, as if the pod trained alone."""
        record = record or self._alone()
        rank = record.first_rank + local_rank
        values = {
            "RANK": rank,
            "LOCAL_RANK": local_rank,
            "WORLD_SIZE": record.world_size,
            "LOCAL_WORLD_SIZE": record.processes,
            "GROUP_RANK": record.place,
            "GROUP_WORLD_SIZE": record.pods,
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": record.world_size,
            "ROLE_NAME": "default",
            "MASTER_ADDR": record.host,
            "MASTER_PORT": record.store_port,
            "TORCHELASTIC_RUN_ID": f"{self.settings.job_uid}-{self.settings.incarnation}",
            "TORCHELASTIC_RESTART_COUNT": record.number,
            "TORCHELASTIC_MAX_RESTARTS": 2**31 - 1,
            "TORCHELASTIC_USE_AGENT_STORE": True,
            contract.ENV_GENERATION: record.number,
            contract.ENV_MASTER_EPOCH: record.epoch,
            contract.ENV_LIBRARY: self.trainees.path,
        }
        inherited = {key: value for key, value in self.environ.items() if key != contract.ENV_TOKEN}
        # Data loaders' workers that are not forked look for the package that the script has imported.
        paths = [path for path in (inherited.get("PYTHONPATH", ""), str(PACKAGE_FOLDER)) if path]
        inherited["PYTHONPATH"] = os.pathsep.join(paths)
        if record.processes > 1:
            # torchrun's own default: processes that each take all cores slow each other down.
            inherited.setdefault("OMP_NUM_THREADS", "1")
        return {**inherited, **{key: str(value) for key, value in values.items()}}


async def _end_of(process: TrainingProcess) -> int:
    """Its exit code; 1 already when it has an uncaught exception, since its own end may take a second more."""
    while not process.exited.done() and process.error is None:
        await asyncio.wait({process.exited}, timeout=FAILURE_POLL_SECONDS)
    return process.exited.result() if process.exited.done() else 1


def _since(time_: float) -> float:
    return time.monotonic() - time_
