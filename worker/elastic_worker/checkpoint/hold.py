"""Stops training processes right after a complete checkpoint: frozen first, ended only if it is whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from elastic_worker.checkpoint.candidates import QUIET_SECONDS
from elastic_worker.checkpoint.watch import CheckpointWatch
from elastic_worker.checkpoint.writers import all_stopped

LOOK_SECONDS = 0.05
NOTICE_SECONDS = 0.2
"""Until the watch has surely been told of a file that was just closed."""
FREEZE_SECONDS = 2.0
"""A process that waits for a disk stops only when that is done."""


class Freezable(Protocol):
    """A training process as far as this is concerned."""

    pid: int

    def freeze(self) -> None:
        """Stop it where it is."""

    def thaw(self) -> None:
        """Let it run on."""


async def stop_at_checkpoint(
    watch: CheckpointWatch, processes: Sequence[Freezable], *, seconds: float, last_call: float | None = None
) -> bool:
    """Freeze the processes right after the next complete checkpoint; True: they are frozen and it is whole.

    Waits at most `seconds`, longer only while a checkpoint is being written, and never beyond `last_call` (monotonic
    seconds). False: there was none, and the processes run. So they do if this is cancelled.
    """
    deadline = _Deadline(watch, time.monotonic() + seconds, last_call)
    while await deadline.next_complete():
        held = False
        try:
            _freeze(processes)
            held = await _is_safe(watch, processes)
        finally:
            if not held:
                _thaw(processes)
        if held:
            return True
    return False


class _Deadline:
    """Waits for checkpoints until it is too late for another one."""

    def __init__(self, watch: CheckpointWatch, deadline: float, last_call: float | None) -> None:
        self._watch, self._deadline, self._last_call = watch, deadline, last_call
        self._settled_at = self._noticed_at = deadline

    async def next_complete(self) -> bool:
        """Whether a checkpoint was completed in time."""
        complete = asyncio.ensure_future(self._watch.next_complete())
        try:
            while not complete.done() and await self._is_worth_waiting():
                await asyncio.wait({complete}, timeout=self._slice())
            return complete.done()
        finally:
            complete.cancel()

    def _slice(self) -> float:
        now = time.monotonic()
        until = self._deadline if now < self._deadline else now + LOOK_SECONDS
        return max(0.0, min(until, self._last_call or until) - now)

    async def _is_worth_waiting(self) -> bool:
        """In time, or one is being written, or was until just now and may turn out to be complete."""
        now = time.monotonic()
        if self._last_call is not None and now >= self._last_call:
            return False
        if now < self._deadline:
            return True
        if await asyncio.to_thread(self._watch.being_written):
            self._noticed_at = time.monotonic() + NOTICE_SECONDS
            self._settled_at = time.monotonic() + 2 * QUIET_SECONDS
            return True
        pending = self._watch.pending or now < self._noticed_at
        return pending and now < max(self._settled_at, self._deadline + 2 * QUIET_SECONDS)


async def _is_safe(watch: CheckpointWatch, processes: Sequence[Freezable]) -> bool:
    """Whether everybody stands still, nobody is in the middle of writing, and what was written is whole."""
    pids = [process.pid for process in processes]
    until = time.monotonic() + FREEZE_SECONDS
    while not all_stopped(pids):
        if time.monotonic() >= until:
            return False
        await asyncio.sleep(0.001)
    return await asyncio.to_thread(lambda: not watch.being_written() and watch.verify())


def _freeze(processes: Sequence[Freezable]) -> None:
    for process in processes:
        process.freeze()


def _thaw(processes: Sequence[Freezable]) -> None:
    for process in processes:
        process.thaw()
