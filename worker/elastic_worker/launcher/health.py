"""Looks at the training processes once a second: frozen ones are ended, idle time (`life`) and steps are told."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Mapping

from elastic_worker.checkpoint.freeze import LONGEST_SECONDS
from elastic_worker.launcher.group import Group
from elastic_worker.launcher.life import Life, Seen
from elastic_worker.launcher.membership import Membership
from elastic_worker.proc import moved_bytes
from elastic_worker.processes.starter import TrainingProcess
from elastic_worker.protocol.reports import Idle, Step, Stuck, StuckRank

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
SILENT_SHARE = 0.25
"""Of stallSeconds: a process that has done no step for that long must read and write."""
FROZEN_SECONDS = 5.0
"""A process that somebody else has stopped for so long is ended; the kernel says T of it."""
IN_PLACE_FROZEN_SECONDS = 2.0
"""The same where the others go on without it and it joins them again within moments (126)."""
ALIGNING_FROZEN_SECONDS = LONGEST_SECONDS + FROZEN_SECONDS
"""The same while a checkpoint is waited for: processes are stopped, too, while one is looked at."""


class Health:
    """Of the processes of one pod."""

    def __init__(self, group: Group, membership: Membership) -> None:
        self._group, self._membership = group, membership
        self._frozen_since: dict[int, float] = {}
        self._stuck: StuckRank | None = None
        self._lives: dict[int, Life] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            # All of /proc is read: once for all processes, and never on the event loop.
            silent = self.silent(time.monotonic())
            moved = await asyncio.to_thread(moved_bytes, silent) if silent else {}
            self.look(time.monotonic(), moved)
            await asyncio.sleep(LOOK_SECONDS)

    def silent(self, now: float) -> list[int]:
        """Pids of the plain scripts' processes that must read and write, as they have done no step for long."""
        if self._group.trainees.kind:
            return []
        long = SILENT_SHARE * self._group.settings.stall_seconds
        return [p.pid for p in self._running() if p.steps[1] is not None and now >= p.steps[1] + long]

    def look(self, now: float, moved: Mapping[int, int]) -> None:
        """Once; `moved` is by the pids of those that are silent."""
        self._end_frozen(now)
        self._membership.know(Idle(round(self._idle(now, moved), 1)), Step(self._group.step))
        self._tell_stalls()

    def _tell_stalls(self) -> None:
        """Once it is so, and once it is not any more."""
        stuck = self._group.trainees.ask_where(self._group.settings.stall_seconds)
        record = self._group.record
        told = None
        if stuck is not None and record is not None and self._group.running:
            local_rank, where = stuck
            rank = record.first_rank + local_rank
            told = StuckRank(record.number, rank, where.boundary, where.seconds)
        if (told is None) != (self._stuck is None):
            self._membership.tell(Stuck(told))
        self._stuck = told

    def _end_frozen(self, now: float) -> None:
        frozen = {p.pid: p for p in self._group.processes if not self._group.aligning.frozen and p.state() == "T"}
        self._frozen_since = {pid: self._frozen_since.get(pid, now) for pid in frozen}
        patience = IN_PLACE_FROZEN_SECONDS if self._group.trainees.in_place else FROZEN_SECONDS
        if self._group.aligning.under_way:
            patience = ALIGNING_FROZEN_SECONDS
        for pid, since in self._frozen_since.items():
            if now >= since + patience:
                log.warning("process %d has been stopped for %.0f s by somebody else: it is ended", pid, now - since)
                frozen[pid].signal(signal.SIGKILL)

    def _idle(self, now: float, moved: Mapping[int, int]) -> float:
        """Seconds since any of the processes last did something; 0 while there are none."""
        running = self._running()
        self._lives = {p.pid: self._lives.get(p.pid) or Life() for p in running}
        return min((self._lives[p.pid].idle(self._seen(p, moved.get(p.pid)), now) for p in running), default=0.0)

    def _running(self) -> list[TrainingProcess]:
        return [process for process in self._group.processes if not process.exited.done()]

    def _seen(self, process: TrainingProcess, moved: int | None) -> Seen:
        """Steps of scripts that use the library are `_tell_stalls`' affair: it knows which of them take too long."""
        steps = process.steps
        if steps.last is None or self._group.trainees.kind:
            return Seen(process.cpu_seconds())
        return Seen(process.cpu_seconds(), moved, steps.count, steps.first, steps.last)
