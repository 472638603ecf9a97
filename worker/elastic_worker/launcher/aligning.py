"""This pod's part in stopping a group right after a checkpoint: its processes are frozen, or let go on."""

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
"""For the end of a file that is being written, while other pods stand still and wait for it."""


class Aligning:
    """Of one pod. `running` gives its processes, `tell` reaches the coordinator, `completed` hears of a checkpoint."""

    def __init__(
        self,
        watch: CheckpointWatch | None,
        running: Callable[[], list[TrainingProcess]],
        tell: Callable[..., None],
        completed: Callable[[], None],
    ) -> None:
        self._watch, self._running, self._tell, self._completed = watch, running, tell, completed
        self.frozen = False
        """Whether the processes stand still for good: until they are stopped, or `cancel`."""
        self._hold: asyncio.Task[None] | None = None
        self._standing: asyncio.Task[None] | None = None
        self._finishing: asyncio.Task[bool] | None = None
        self._limits: tuple[float, float | None] = 0.0, None

    @property
    def under_way(self) -> bool:
        """Whether a checkpoint is waited for, or the end of a file."""
        return any(task is not None and not task.done() for task in (self._hold, self._standing, self._finishing))

    def begin(self, seconds: float | None, last_call: float | None) -> None:
        """Freeze right after the next complete checkpoint, and say so; say so too if there is none.

        It is to begin within `seconds`, and to end within `last_call` seconds; None: whenever that is.
        """
        self.cancel()
        now = time.monotonic()
        until = now + (NO_LIMIT_SECONDS if seconds is None else seconds)
        self._limits = until, None if last_call is None else now + last_call
        self._hold = asyncio.ensure_future(self._wait())

    def stand_still(self, round_: int, *, marked: bool) -> None:
        """Processes of another pod stand right after a checkpoint: freeze these too, unless they have some to write."""
        if self._standing is not None:
            self._standing.cancel()
        self._standing = asyncio.ensure_future(self._stand_still(round_, marked=marked))

    def cancel(self) -> None:
        """Wait for no checkpoint any more, and let frozen processes go on."""
        for task in (self._hold, self._standing, self._finishing):
            if task is not None:
                task.cancel()
        self._hold = self._standing = None
        if self.frozen:
            self.frozen = False
            for process in self._running():
                process.thaw()

    async def finish_writing(self, seconds: float) -> None:
        """Before they are stopped, let the processes write the file to its end that they write, and stand there (89).

        Also after a loss: a file that is written in place may be the only checkpoint there is. Whoever stops the
        processes meanwhile is in a hurry: `cancel` ends this.
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
            self._tell(Aligned(False))
            return
        until, last_call = self._limits
        seconds = max(0.0, until - time.monotonic())
        self.frozen = await stop_at_checkpoint(self._watch, self._running(), seconds=seconds, last_call=last_call)
        if self.frozen:
            self._completed()
        self._tell(Aligned(self.frozen, marked=self.frozen and self._watch.marked))

    async def _stand_still(self, round_: int, *, marked: bool) -> None:
        """A pod that still writes waits for its own checkpoint."""
        watch = self._watch
        if watch is not None and not self.frozen and (marked or not await is_under_way(watch)):
            await _end(self._hold)
            if not self.frozen:
                self.frozen = await stand_still(watch, self._running(), seconds=STILL_SECONDS, marked=marked)
            if not self.frozen:
                self._hold = asyncio.ensure_future(self._wait())
        self._tell(StandsStill(self.frozen or watch is None, round_))


async def _end(*tasks: asyncio.Task[None] | None) -> None:
    here = {task for task in tasks if task is not None}
    for task in here:
        task.cancel()
    if here:
        await asyncio.wait(here)
