"""This pod's part in stopping a group right after a checkpoint: it freezes its processes, or lets them run on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from elastic_worker.checkpoint.freeze import freeze_between_writes, is_under_way, stand_still, stop_at_checkpoint
from elastic_worker.protocol.reports import Aligned, StandsStill

if TYPE_CHECKING:
    from elastic_worker.checkpoint.watch import CheckpointWatch
    from elastic_worker.processes.starter import TrainingProcess

NO_LIMIT_SECONDS = 30 * 86_400.0
STILL_SECONDS = 10.0
"""The longest wait for the end of a file that is being written, while the processes of other pods are frozen."""


class Aligning:
    """Aligns the processes of one pod with a checkpoint.

    `running` returns the pod's processes, `report` sends to the coordinator, `completed` is called at a checkpoint.
    """

    def __init__(
        self,
        watch: CheckpointWatch | None,
        running: Callable[[], list[TrainingProcess]],
        report: Callable[..., None],
        completed: Callable[[], None],
    ) -> None:
        self._watch, self._running, self._report, self._completed = watch, running, report, completed
        self.frozen = False
        """Whether the processes are frozen until they are stopped, or until `cancel`."""
        self._hold: asyncio.Task[None] | None = None
        self._standing: asyncio.Task[None] | None = None
        self._finishing: asyncio.Task[bool] | None = None
        self._limits: tuple[float, float | None] = 0.0, None

    @property
    def under_way(self) -> bool:
        """Whether this pod waits for a checkpoint, or for the end of a file."""
        return any(task is not None and not task.done() for task in (self._hold, self._standing, self._finishing))

    def begin(self, seconds: float | None, last_call: float | None) -> None:
        """Freeze the processes right after the next complete checkpoint. Reports whether there was one (`Aligned`).

        The checkpoint must begin within `seconds` and end within `last_call` seconds from now; None means no limit.
        """
        self.cancel()
        now = time.monotonic()
        until = now + (NO_LIMIT_SECONDS if seconds is None else seconds)
        self._limits = until, None if last_call is None else now + last_call
        self._hold = asyncio.ensure_future(self._wait())

    def stand_still(self, round_: int, *, marked: bool) -> None:
        """Freeze the processes as well, since those of another pod are frozen right after a checkpoint.

        With `marked` that checkpoint has its marker. Processes that still write a part of it are not frozen yet.
        """
        if self._standing is not None:
            self._standing.cancel()
        self._standing = asyncio.ensure_future(self._stand_still(round_, marked=marked))

    def cancel(self) -> None:
        """Stop waiting for a checkpoint, and let frozen processes continue."""
        for task in (self._hold, self._standing, self._finishing):
            if task is not None:
                task.cancel()
        self._hold = self._standing = None
        if self.frozen:
            self.frozen = False
            for process in self._running():
                process.thaw()

    async def finish_writing(self, seconds: float) -> None:
        """Let the processes finish the file that they are writing, and freeze them there, before they are stopped (89).

        This takes at most `seconds`. It is also done after a loss, since a file that is written in place may be the
        only checkpoint. `cancel` ends the wait early.
        """
        if self._watch is None or seconds <= 0 or self._finishing is not None:
            return
        await _end(self._hold, self._standing)
        if not self.frozen:
            finishing = asyncio.ensure_future(freeze_between_writes(self._watch, self._running(), seconds=seconds))
            self._finishing = finishing
            await asyncio.wait({finishing})
            self._finishing = None

    async def _wait(self) -> None:
        if self._watch is None:
            self._report(Aligned(False))
            return
        until, last_call = self._limits
        seconds = max(0.0, until - time.monotonic())
        self.frozen = await stop_at_checkpoint(self._watch, self._running(), seconds=seconds, last_call=last_call)
        if self.frozen:
            self._completed()
        self._report(Aligned(self.frozen, marked=self.frozen and self._watch.marked))

    async def _stand_still(self, round_: int, *, marked: bool) -> None:
        """Freeze, and report it. A pod that still writes waits for the end of its own checkpoint instead."""
        watch = self._watch
        if watch is not None and not self.frozen and (marked or not await is_under_way(watch)):
            await _end(self._hold)
            if not self.frozen:
                self.frozen = await stand_still(watch, self._running(), seconds=STILL_SECONDS, marked=marked)
            if not self.frozen:
                self._hold = asyncio.ensure_future(self._wait())
        self._report(StandsStill(self.frozen or watch is None, round_))


async def _end(*tasks: asyncio.Task[None] | None) -> None:
    running = {task for task in tasks if task is not None}
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
