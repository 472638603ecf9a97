"""When the loop makes its passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any
from unittest.mock import AsyncMock, MagicMock

from elastic_operator.cluster.write_queue import Urgency, WriteQueue
from elastic_operator.loop.controller import Controller, WakeUp
from elastic_operator.metrics import Metrics
from elastic_operator.metrics.counters import PassReason
from tests.kit.tasks import running

DUE_SECONDS = 5.0


class Passes(Controller):
    """A loop whose passes do nothing, and are due every five seconds."""

    def __init__(self, began: list[float], writes: WriteQueue) -> None:
        parts = ("planner", "reconciler", "limiter", "nominator", "dry_runs", "forecasts")
        reports = ("logs", "reclaim_reporter")
        super().__init__(
            view=MagicMock(),
            metrics=Metrics(),
            clock=MagicMock(),
            awake=asyncio.Event(),
            on_decisions=lambda _: None,
            of_jobs=(),
            writes=writes,
            **{name: AsyncMock() for name in (*parts, *reports)},
        )
        self._began = began

    async def _read_ahead(self) -> None:
        """Nothing is new."""

    def run_pass(self) -> WakeUp:
        self._began.append(now := time.monotonic())
        return WakeUp(now + DUE_SECONDS, PassReason.ALLOCATION)


async def write(writes: WriteQueue) -> None:
    """A write whose answer takes a second."""
    async with writes.turn(Urgency.CHANGE):
        await asyncio.sleep(1.0)


async def at_once(*work: Coroutine[Any, Any, None]) -> None:
    await asyncio.gather(*work)


async def test_a_pass_is_not_later_for_the_time_that_the_loop_waits_for_writes():
    began: list[float] = []
    writes = WriteQueue(1)
    queued = [write(writes) for _ in range(100)]
    async with running(at_once(*queued, Passes(began, writes).run())):
        await asyncio.sleep(2.5 * DUE_SECONDS)
    assert [at - began[0] for at in began] == [0, DUE_SECONDS, 2 * DUE_SECONDS]
