"""When the loop makes its passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any
from unittest.mock import AsyncMock, MagicMock

from elastic_operator.cluster.write_queue import Urgency, WriteQueue
from elastic_operator.loop.batching import LONGEST_FOR_CREATIONS_SECONDS
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
        self.changed = self.view.reader.external_changes.noted = asyncio.Event()

    async def _read_ahead(self) -> None:
        """Nothing is new."""

    def run_pass(self) -> WakeUp:
        self._began.append(now := time.monotonic())
        self.changed.clear()
        return WakeUp(now + DUE_SECONDS, PassReason.ALLOCATION)


async def write(writes: WriteQueue, urgency: Urgency = Urgency.CHANGE, seconds: float = 1.0) -> None:
    """A write whose answer takes this long."""
    async with writes.turn(urgency):
        await asyncio.sleep(seconds)


async def at_once(*work: Coroutine[Any, Any, None]) -> None:
    await asyncio.gather(*work)


async def test_a_pass_is_not_later_for_the_time_that_the_loop_waits_for_writes():
    began: list[float] = []
    writes = WriteQueue(1)
    queued = [write(writes) for _ in range(100)]
    async with running(at_once(*queued, Passes(began, writes).run())):
        await asyncio.sleep(2.5 * DUE_SECONDS)
    assert [at - began[0] for at in began] == [0, DUE_SECONDS, 2 * DUE_SECONDS]


async def test_passes_are_rare_while_creations_wait_and_at_once_when_the_last_one_has_begun():
    began: list[float] = []
    writes = WriteQueue(1)
    passes = Passes(began, writes)

    async def change_always() -> None:
        while True:
            passes.wake()
            await asyncio.sleep(0.001)

    queued = [write(writes, Urgency.CREATE, 0.25) for _ in range(5)]
    async with running(at_once(*queued, passes.run(), change_always())):
        since = time.monotonic()
        await asyncio.sleep(2.0)
    begun = [at - since for at in began]
    last_begins = 4 * 0.25
    while_they_wait = [at for at in begun if at < last_begins]
    assert len(while_they_wait) == round(last_begins / LONGEST_FOR_CREATIONS_SECONDS)
    assert len(begun) > 10 * len(while_they_wait)


async def test_a_new_job_does_not_wait_for_creations():
    began: list[float] = []
    writes = WriteQueue(1)
    passes = Passes(began, writes)

    async def jobs_arrive() -> None:
        for _ in range(5):
            await asyncio.sleep(0.01)
            passes.changed.set()
            passes.wake()

    queued = [write(writes, Urgency.CREATE) for _ in range(5)]
    async with running(at_once(*queued, passes.run(), jobs_arrive())):
        await asyncio.sleep(2 * LONGEST_FOR_CREATIONS_SECONDS)
    assert [round(at - began[0], 3) for at in began] == [0, 0.01, 0.02, 0.03, 0.04, 0.05]
