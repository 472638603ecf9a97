"""Looks at the training processes once a second: frozen ones are ended, idle time is counted, steps are told."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from typing import Any

from elastic_worker.checkpoint.hold import LONGEST_SECONDS
from elastic_worker.launcher.group import Group
from elastic_worker.launcher.membership import Membership
from elastic_worker.processes.children import Process

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
LEAST_STALL_SECONDS = 60.0
"""No step of a script that uses the library is given up earlier, unless stallSeconds is less."""
FROZEN_SECONDS = 5.0
"""A process that somebody else has stopped for so long is ended; the kernel says T of it."""
ALIGNING_FROZEN_SECONDS = LONGEST_SECONDS + FROZEN_SECONDS
"""The same while a checkpoint is waited for: processes are stopped, too, while one is looked at."""
BUSY_SHARE = 0.01
"""Of one CPU; who uses less does nothing."""
NOTHING_SECONDS = 0.03
"""Of CPU time: what the threads of a process that waits need now and then. The kernel counts in hundredths."""


class Health:
    """Of the processes of one pod."""

    def __init__(self, group: Group, membership: Membership) -> None:
        self._group, self._membership = group, membership
        self._frozen_since: dict[int, float] = {}
        self._stuck: dict[str, Any] | None = None
        self._idle_since: dict[int, tuple[float, float]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            now = time.monotonic()
            self._end_frozen(now)
            self._membership.know(idle=round(self._idle(now), 1), step=self._step())
            self._tell_stalls()
            await asyncio.sleep(LOOK_SECONDS)

    def _tell_stalls(self) -> None:
        """Once it is so, and once it is not any more."""
        stuck = self._group.library.ask_where(min(LEAST_STALL_SECONDS, self._group.settings.stall_seconds))
        record = self._group.record
        told = None
        if stuck is not None and record is not None and self._group.running:
            rank = record.first_rank(self._group.settings.pod_uid) + stuck["rank"]
            told = {"generation": record.number, "rank": rank, "tick": stuck["tick"], "seconds": stuck["seconds"]}
        if (told is None) != (self._stuck is None):
            self._membership.tell(stuck=told)
        self._stuck = told

    def _step(self) -> int:
        """Of the whole training: what the library says, else what was counted since the group formed."""
        said = self._group.library.progress().get("step")
        record = self._group.record
        return int(said) if said is not None else (record.step if record else 0) + self._group.steps

    def _end_frozen(self, now: float) -> None:
        frozen = {p.pid: p for p in self._group.processes if not self._group.aligning.frozen and p.state() == "T"}
        self._frozen_since = {pid: self._frozen_since.get(pid, now) for pid in frozen}
        patience = ALIGNING_FROZEN_SECONDS if self._group.aligning.under_way else FROZEN_SECONDS
        for pid, since in self._frozen_since.items():
            if now >= since + patience:
                log.warning("process %d has been stopped for %.0f s by somebody else: it is ended", pid, now - since)
                frozen[pid].signal(signal.SIGKILL)

    def _idle(self, now: float) -> float:
        """Seconds since any of the processes last used its CPU; 0 while there are none."""
        running = [p for p in self._group.processes if not p.exited.done()]
        self._idle_since = {p.pid: self._since(p, now) for p in running}
        return min((now - since for _, since in self._idle_since.values()), default=0.0)

    def _since(self, process: Process, now: float) -> tuple[float, float]:
        """Its CPU time when it was last seen busy, and when that was."""
        used = process.cpu_seconds()
        before, since = self._idle_since.get(process.pid, (used, now))
        is_busy = used - before > NOTHING_SECONDS + BUSY_SHARE * (now - since)
        return (used, now) if is_busy else (before, since)
