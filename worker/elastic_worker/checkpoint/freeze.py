"""Stops training processes right after a complete checkpoint: freezes them first, and ends them only if it is whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from elastic_worker.checkpoint.watch import CheckpointWatch
from elastic_worker.checkpoint.writers import all_stopped

LOOK_SECONDS = 0.05
NOTICE_SECONDS = 0.2
"""Time after which the watch has certainly seen the close of a file."""
TURN_SECONDS = 0.001
"""One turn of the event loop, after which all earlier events of the kernel were read."""
FREEZE_SECONDS = 2.0
"""Time for a process to stop. A process that waits for a disk stops only after that wait."""
LONGEST_SECONDS = 10.0
"""Longest time for which processes are frozen during a check, for instance on a mount that hangs."""


class Freezable(Protocol):
    """The methods of a training process that freezing needs."""

    pid: int

    def freeze(self) -> None:
        """Stop the process where it is."""

    def thaw(self) -> None:
        """Let the process continue."""


async def stop_at_checkpoint(
    watch: CheckpointWatch, processes: Sequence[Freezable], *, seconds: float, last_call: float | None = None
) -> bool:
    """Freeze the processes right after the next complete checkpoint.

    Returns True if they are frozen and the checkpoint is whole, and False if there was none and they run. They also run
    if this is cancelled. Waits at most `seconds`, longer only while a checkpoint is under way, and never beyond
    `last_call` (monotonic seconds).
    """
    deadline = _Deadline(watch, time.monotonic() + seconds, last_call)
    hold = _Hold(processes)
    try:
        # The processes are frozen before the checkpoint is checked, as that may take longer than a step.
        with watch.alarm(hold.freeze):
            while (is_complete := await deadline.next_check()) is not None:
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

    Returns True if they are frozen, False if there was no such moment within `seconds` and they run.
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
    """Freeze the processes, since another pod has found a checkpoint complete. Returns whether they are frozen.

    They continue if they still write a part of this checkpoint, or of the next one. A checkpoint that is `marked` has
    all its parts, so only open files matter then: these can be finished within `seconds`.
    """
    if not await freeze_between_writes(watch, processes, seconds=seconds):
        return False
    if marked or not await is_under_way(watch):
        return True
    for process in processes:
        process.thaw()
    return False


async def is_under_way(watch: CheckpointWatch) -> bool:
    """Whether a checkpoint is under way. Waits first until the watch has seen the files that were just closed."""
    until = time.monotonic() + FREEZE_SECONDS
    await asyncio.sleep(TURN_SECONDS)
    while watch.behind:
        if time.monotonic() >= until:
            return True
        await asyncio.sleep(TURN_SECONDS)
    return watch.unfinished


class _Hold:
    """Freezes the processes, for LONGEST_SECONDS at most unless they are kept."""

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
        """Leave the processes frozen; returns False if that came too late and they run."""
        if self._thaw_at is None:
            return False
        self._thaw_at.cancel()
        self._thaw_at = None
        return True


class _Deadline:
    """Waits for checkpoints until the time for another one is over."""

    def __init__(self, watch: CheckpointWatch, deadline: float, last_call: float | None) -> None:
        self._watch, self._deadline, self._last_call = watch, deadline, last_call
        self._noticed_at = deadline
        self._checks, self._completed = watch.checks, watch.completed

    async def next_check(self) -> bool | None:
        """Whether a check since the last call found a complete checkpoint; None if there was no check in time."""
        check = asyncio.ensure_future(self._watch.check_after(self._checks))
        try:
            while not check.done() and await self._is_worth_waiting():
                await asyncio.wait({check}, timeout=self._slice())
        finally:
            check.cancel()
        checks, completed = self._checks, self._completed
        self._checks, self._completed = self._watch.checks, self._watch.completed
        return self._completed > completed if self._checks > checks else None

    def _slice(self) -> float:
        now = time.monotonic()
        until = self._deadline if now < self._deadline else now + LOOK_SECONDS
        return max(0.0, min(until, self._last_call or until) - now)

    async def _is_worth_waiting(self) -> bool:
        """Whether there is time left, or a checkpoint is under way or may turn out to be complete."""
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
