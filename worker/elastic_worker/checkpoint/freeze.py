"""Stops training processes right after a complete checkpoint: frozen first, ended only if it is whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from elastic_worker.checkpoint.watch import CheckpointWatch
from elastic_worker.checkpoint.writers import all_stopped

LOOK_SECONDS = 0.05
NOTICE_SECONDS = 0.2
"""Time after which the watch has surely seen the event of a file that was just closed."""
TURN_SECONDS = 0.001
"""One turn of the event loop, which then has read all earlier events of the kernel."""
FREEZE_SECONDS = 2.0
"""Time for a process to stop; one that waits for a disk stops only after that."""
LONGEST_SECONDS = 10.0
"""How long processes stand still at most while a checkpoint is looked at, on a mount that hangs for instance."""


class Freezable(Protocol):
    """What freezing needs of a training process."""

    pid: int

    def freeze(self) -> None:
        """Stop it where it is."""

    def thaw(self) -> None:
        """Let it run on."""


async def stop_at_checkpoint(
    watch: CheckpointWatch, processes: Sequence[Freezable], *, seconds: float, last_call: float | None = None
) -> bool:
    """Freeze the processes right after the next complete checkpoint; True: they are frozen and it is whole.

    Waits at most `seconds`, longer only while a checkpoint is under way, and never beyond `last_call` (monotonic
    seconds). False: there was none, and the processes run. So they do if this is cancelled.
    """
    deadline = _Deadline(watch, time.monotonic() + seconds, last_call)
    hold = _Hold(processes)
    try:
        # Frozen before it is looked at: looking may take longer than a step.
        with watch.alarm(hold.freeze):
            while (is_complete := await deadline.next_look()) is not None:
                if is_complete:
                    hold.freeze()
                    if await _is_safe(watch, processes) and hold.keep():
                        return True
                if is_complete or not watch.behind:
                    hold.thaw()
    finally:
        hold.thaw()
    return False


async def freeze_between_writes(watch: CheckpointWatch, processes: Sequence[Freezable], *, seconds: float) -> bool:
    """Freeze the processes at a moment at which none of them has a file of the checkpoint open for writing.

    True: they are frozen. False: there was no such moment within `seconds`, and they run.
    """
    until = time.monotonic() + seconds
    hold = _Hold(processes)
    try:
        while True:
            hold.freeze()
            if (
                await _stand_still(processes, until)
                and not await asyncio.to_thread(watch.being_written)
                and hold.keep()
            ):
                return True
            hold.thaw()
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        hold.thaw()


async def stand_still(watch: CheckpointWatch, processes: Sequence[Freezable], *, seconds: float, marked: bool) -> bool:
    """Freeze the processes, since another pod has found a checkpoint complete.

    False: they have a part of it, or of the next one, to write, and run. Where it is `marked` it has all its parts, so
    that only files matter that are open; these may be written to their end, within `seconds`.
    """
    if not await freeze_between_writes(watch, processes, seconds=seconds):
        return False
    if marked or not await is_under_way(watch):
        return True
    for process in processes:
        process.thaw()
    return False


async def is_under_way(watch: CheckpointWatch) -> bool:
    """Whether a checkpoint is under way, after time for the events of files that were just closed."""
    until = time.monotonic() + FREEZE_SECONDS
    await asyncio.sleep(TURN_SECONDS)
    while watch.behind:
        if time.monotonic() >= until:
            return True
        await asyncio.sleep(TURN_SECONDS)
    return watch.unfinished


class _Hold:
    """The processes, frozen or not; not for long, unless they are kept so."""

    def __init__(self, processes: Sequence[Freezable]) -> None:
        self._processes = processes
        self._thaw_at: asyncio.TimerHandle | None = None

    def freeze(self) -> None:
        if self._thaw_at is None:
            self._thaw_at = asyncio.get_running_loop().call_later(LONGEST_SECONDS, self.thaw)
            for process in self._processes:
                process.freeze()

    def thaw(self) -> None:
        if self._thaw_at is not None:
            self._thaw_at.cancel()
            self._thaw_at = None
            for process in self._processes:
                process.thaw()

    def keep(self) -> bool:
        """Leave them frozen for good; False: it took too long, and they run."""
        if self._thaw_at is None:
            return False
        self._thaw_at.cancel()
        self._thaw_at = None
        return True


class _Deadline:
    """Waits for checkpoints until it is too late for another one."""

    def __init__(self, watch: CheckpointWatch, deadline: float, last_call: float | None) -> None:
        self._watch, self._deadline, self._last_call = watch, deadline, last_call
        self._noticed_at = deadline

    async def next_look(self) -> bool | None:
        """Whether the next look found a complete checkpoint; None: there was no other look in time."""
        look = asyncio.ensure_future(self._watch.next_look())
        try:
            while not look.done() and await self._is_worth_waiting():
                await asyncio.wait({look}, timeout=self._slice())
            return look.result() if look.done() else None
        finally:
            look.cancel()

    def _slice(self) -> float:
        now = time.monotonic()
        until = self._deadline if now < self._deadline else now + LOOK_SECONDS
        return max(0.0, min(until, self._last_call or until) - now)

    async def _is_worth_waiting(self) -> bool:
        """In time, or one is under way, or was written until just now and may turn out to be complete."""
        now = time.monotonic()
        if self._last_call is not None and now >= self._last_call:
            return False
        if now < self._deadline:
            return True
        if self._watch.unfinished or await asyncio.to_thread(self._watch.being_written):
            self._noticed_at = time.monotonic() + NOTICE_SECONDS
            return True
        return now < self._noticed_at


async def _is_safe(watch: CheckpointWatch, processes: Sequence[Freezable]) -> bool:
    """Whether all processes are frozen, none has a file of the checkpoint open, and the checkpoint is whole."""
    if not await _stand_still(processes, time.monotonic() + FREEZE_SECONDS):
        return False
    return await asyncio.to_thread(lambda: not watch.being_written() and watch.verify())


async def _stand_still(processes: Sequence[Freezable], until: float) -> bool:
    pids = [process.pid for process in processes]
    while not all_stopped(pids):
        if time.monotonic() >= until:
            return False
        await asyncio.sleep(TURN_SECONDS)
    return True
