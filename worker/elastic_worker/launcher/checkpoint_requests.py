"""This pod's part in requesting a checkpoint from the script, on all ranks of the group after the same step (132)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from elastic_worker.protocol.orders import ProposeCheckpointStep, RequestCheckpoint
from elastic_worker.protocol.reports import CheckpointStepReply

if TYPE_CHECKING:
    from elastic_worker.processes.starter import TrainingProcess

log = logging.getLogger(__name__)

FIRST_STEP_SECONDS = 10.0
"""A process that has run for so long without a step counts as one whose steps are not counted."""
LOOK_SECONDS = 0.05
SETTLE_SECONDS = 0.001
"""For what a process wrote before it could read the proposal to be seen here: a core keeps it back for nanoseconds."""


class CheckpointRequests:
    """The request to one pod that is under way. `running` gives its processes, `tell` reaches the coordinator."""

    def __init__(self, running: Callable[[], list[TrainingProcess]], tell: Callable[..., None]) -> None:
        self._running, self._tell = running, tell
        self._answering: asyncio.Task[None] | None = None

    def propose(self, order: ProposeCheckpointStep) -> None:
        """Hold the processes after that step, and report how far they are; an earlier proposal is withdrawn."""
        self.withdraw()
        self._answering = asyncio.ensure_future(self._answer(order))

    def request(self, order: RequestCheckpoint) -> None:
        """Ask the script for a checkpoint; it may ignore the request."""
        for process in self._running():
            if not process.handles_signal:
                log.warning("%s is not sent: process %d has no handler for it", process.signal_name, process.pid)
            process.ask_for_checkpoint(order.step)

    def withdraw(self) -> None:
        """Let held processes go on. A script that was asked is not told otherwise."""
        if self._answering is not None:
            self._answering.cancel()
            self._answering = None
        _propose(self._running(), 0)

    async def _answer(self, order: ProposeCheckpointStep) -> None:
        processes = self._running()
        for process in processes:
            await _first_step(process)
        if order.step:
            _propose(processes, order.step)
            await asyncio.sleep(SETTLE_SECONDS)
        steps = [process.steps for process in processes]
        counts = [each.count for each in steps] or [0]
        is_held = bool(order.step) and all(
            each.count < order.step or each.count == each.waits_at == order.step for each in steps
        )
        if not is_held:
            _propose(processes, 0)
        self._tell(CheckpointStepReply(max(counts) if min(counts) else 0, is_held, order.round))


def _propose(processes: list[TrainingProcess], step: int) -> None:
    for process in processes:
        process.propose(step)


async def _first_step(process: TrainingProcess) -> None:
    """Wait until the process has done a step, or has run for so long that none is to be expected."""
    until = process.started + FIRST_STEP_SECONDS
    while not process.exited.done() and process.steps.first is None and time.monotonic() < until:
        await asyncio.wait({process.exited}, timeout=LOOK_SECONDS)
