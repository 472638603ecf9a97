"""Checks the training processes once a second: ends frozen ones, and reports idle time (`life`), steps and stalls."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Mapping

from elastic_worker.checkpoint.freeze import LONGEST_SECONDS
from elastic_worker.launcher.coordinator_connection import CoordinatorConnection
from elastic_worker.launcher.life import Life, Seen
from elastic_worker.launcher.worker_group import WorkerGroup
from elastic_worker.proc import moved_bytes
from elastic_worker.processes.starter import TrainingProcess
from elastic_worker.protocol.reports import Idle, Step, Stuck, StuckRank

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
SILENT_SHARE = 0.25
"""Share of stallSeconds. A process without a step for that long counts as working only if it reads or writes."""
FROZEN_SECONDS = 5.0
"""A process that others have stopped (state T) for that long is ended."""
IN_PLACE_FROZEN_SECONDS = 2.0
"""The same time where groups change in place: the others continue without the process, which rejoins soon (126)."""
ALIGNING_FROZEN_SECONDS = LONGEST_SECONDS + FROZEN_SECONDS
"""The same time during a wait for a checkpoint, since the launcher itself stops processes to check one."""


class Health:
    """Watches the training processes of one pod."""

    def __init__(self, group: WorkerGroup, connection: CoordinatorConnection) -> None:
        self._group, self._connection = group, connection
        self._frozen_since: dict[int, float] = {}
        self._stuck: StuckRank | None = None
        self._lives: dict[int, Life] = {}

    async def run(self) -> None:
        """Check once a second until cancelled."""
        while True:
            # This reads all of /proc: once for all processes, and never on the event loop.
            silent = self.silent(time.monotonic())
            moved = await asyncio.to_thread(moved_bytes, silent) if silent else {}
            self.look(time.monotonic(), moved)
            await asyncio.sleep(LOOK_SECONDS)

    def silent(self, now: float) -> list[int]:
        """Pids of plain scripts' processes without a step for SILENT_SHARE of stallSeconds. `now` is monotonic."""
        if self._group.trainees.change_mode:
            return []
        long = SILENT_SHARE * self._group.settings.stall_seconds
        return [p.pid for p in self._running() if p.steps.last is not None and now >= p.steps.last + long]

    def look(self, now: float, moved: Mapping[int, int]) -> None:
        """Check once. `moved` are the bytes that the silent processes have read and written so far, by pid."""
        self._end_frozen(now)
        self._connection.remember(Idle(round(self._idle(now, moved), 1)), Step(self._group.step))
        self._report_stall()

    def _report_stall(self) -> None:
        """Report when a step of the library's takes far too long on all ranks, and when it does not any more."""
        stuck = self._group.trainees.poll_stuck(self._group.settings.stall_seconds)
        part = self._group.part
        stall = None
        if stuck is not None and part is not None and self._group.running:
            local_rank, position = stuck
            rank = part.first_rank + local_rank
            stall = StuckRank(part.number, rank, position.boundary, position.seconds)
        if (stall is None) != (self._stuck is None):
            self._connection.report(Stuck(stall))
        self._stuck = stall

    def _end_frozen(self, now: float) -> None:
        frozen = {p.pid: p for p in self._group.processes if not self._group.aligning.frozen and p.state() == "T"}
        self._frozen_since = {pid: self._frozen_since.get(pid, now) for pid in frozen}
        patience = IN_PLACE_FROZEN_SECONDS if self._group.trainees.in_place else FROZEN_SECONDS
        if self._group.aligning.under_way:
            patience = ALIGNING_FROZEN_SECONDS
        for pid, since in self._frozen_since.items():
            if now >= since + patience:
                log.warning("process %d was stopped from outside %.0f s ago: it is ended", pid, now - since)
                frozen[pid].signal(signal.SIGKILL)

    def _idle(self, now: float, moved: Mapping[int, int]) -> float:
        """Seconds since any of the processes last did some work; 0 without processes."""
        running = self._running()
        self._lives = {p.pid: self._lives.get(p.pid) or Life() for p in running}
        return min((self._lives[p.pid].idle(self._seen(p, moved.get(p.pid)), now) for p in running), default=0.0)

    def _running(self) -> list[TrainingProcess]:
        return [process for process in self._group.processes if not process.exited.done()]

    def _seen(self, process: TrainingProcess, moved: int | None) -> Seen:
        """Return the input of `life` for a process. `_report_stall` handles steps of scripts that use the library."""
        steps = process.steps
        if steps.last is None or self._group.trainees.change_mode:
            return Seen(process.cpu_seconds())
        return Seen(process.cpu_seconds(), moved, steps.count, steps.first, steps.last)
