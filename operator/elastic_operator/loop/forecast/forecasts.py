"""Makes forecasts beside the passes: answers for jobs that ask, places in line, estimated starts (160, 161).

One decision is made at a time, in a thread. After each decision the thread rests for nine times as long as the decision
took. So forecasts cost at most a tenth of one core, and a pass shares the interpreter with at most one decision.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from elastic_api.status import JobStatus, Phase
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.waiting import wait_with_timeout
from elastic_operator.loop.forecast.queue_positions import QueuePositions
from elastic_operator.loop.forecast.what_ifs import WhatIfs
from elastic_operator.loop.store_view import StoreView
from elastic_operator.metrics import Metrics
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.forecast.answer import Answer
from elastic_operator.plan.forecast.starts import Steps
from elastic_operator.plan.forecast.status_forecasts import awaits_answer, with_position
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.planner import PassDecisions, Planner

log = logging.getLogger(__name__)
T = TypeVar("T")

IDLE_FACTOR = 9.0
"""The rest after each decision, as a multiple of the time that the decision took."""
WHAT_IF_ANSWER_SECONDS = 15.0
"""The most seconds for the decisions of one answer, because a user waits for the answer. If the job does not start by
the last of these decisions, the answer has no estimated start.
"""
NOT_KNOWN = "The operator could not work this out; its log says why."
FORECAST_ERROR_SECONDS = 10.0
LEAST_PAUSE_SECONDS = 0.01
"""The least pause before the next look, because two clocks may round a time differently."""


class Forecasts:
    """The forecasts in jobs' statuses. `requeue` lets a job (uid) be planned again, so that its status is written."""

    def __init__(
        self,
        view: StoreView,
        planner: Planner,
        *,
        metrics: Metrics,
        clock: ServerClock,
        requeue: Callable[[str], None],
    ) -> None:
        self._planner, self._metrics, self._clock, self._requeue = planner, metrics, clock, requeue
        self._news = asyncio.Event()
        self._free_at = 0.0
        """When (monotonic) the rest after the last decision is over."""
        self._spent = 0.0
        """Seconds of all decisions, with the rests after them."""
        self.what_ifs = WhatIfs(view, metrics=metrics)
        self.queue_positions = QueuePositions(metrics=metrics)

    # -- called in passes ----------------------------------------------------------------------------------------------

    def note_allocation(self) -> None:
        """Note that the last pass made a new allocation."""
        self.queue_positions.moved = True
        self._news.set()

    def with_forecast(self, obs: Observation, status: JobStatus) -> JobStatus:
        """The status with the job's place in line, or with its answer if the job asks."""
        if not awaits_answer(obs):
            self.what_ifs.forget(obs.job.uid)
            return with_position(obs, status, self.queue_positions.queue_position(obs.job.uid, written=status.queue))
        answered = self.what_ifs.with_answer(obs, status)
        if answered is None and self.what_ifs.enqueue(obs):
            self._news.set()
        return answered or status

    # -- beside passes ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._news.clear()
            try:
                await self._work()
                await self._until_due()
            except Exception:
                self._metrics.forecast_errors.inc()
                log.exception("forecast failed retry_in=%.0fs", FORECAST_ERROR_SECONDS)
                await asyncio.sleep(FORECAST_ERROR_SECONDS)

    async def _work(self) -> None:
        """Do the work that is due: one question, then the positions. So the positions do not wait for all questions."""
        await self._answer_next()
        if self._planner.decided is not None and time.monotonic() >= self.queue_positions.next_at_monotonic():
            await self._refresh_positions(self._planner.decided)

    async def _answer_next(self) -> None:
        """Answer one question, if any may be answered now. The time is charged to the question's namespace."""
        decided = self._planner.decided
        if decided is None or (uid := self.what_ifs.next()) is None:
            return
        obs, before = decided.obs.get(uid), self._spent
        if obs is not None and awaits_answer(obs):
            await self._answer(obs, decided)
            self.what_ifs.charge(obs.job.namespace, self._spent - before)

    async def _answer(self, obs: Observation, decisions: PassDecisions) -> None:
        """Answer one job. If an error occurs, the job is answered again only after an edit."""
        now = self._clock.time()
        try:
            if obs.job.needs_edit:
                found = Answer(Reason(Phase.INVALID_SPEC, obs.job.needs_edit))
            else:
                found = await self._result_of(self.what_ifs.begin(obs, decisions, now), seconds=WHAT_IF_ANSWER_SECONDS)
            self.what_ifs.end(obs, found, now)
        except Exception:
            self._metrics.forecast_errors.inc()
            log.exception("cannot compute the answer to a what-if question job=%s", obs.job.key)
            self.what_ifs.end(obs, Answer(Reason(Phase.INTERNAL_ERROR, NOT_KNOWN)), now)
        self._requeue(obs.job.uid)

    async def _refresh_positions(self, decisions: PassDecisions) -> None:
        steps = self.queue_positions.refresh(decisions, self._clock.time())
        if steps is not None:
            self.queue_positions.note_estimates(await self._result_of(steps, between=self._answer_next))
        for uid in self.queue_positions.take_due(self._clock.time()):
            self._requeue(uid)

    async def _result_of(
        self, steps: Steps[T], *, seconds: float = inf, between: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        """The result of the steps. After `seconds` the steps must return their result so far.

        The first step reads data of the passes, and decides nothing. The other steps read no such data, and run in a
        thread. `between` is called between steps, for at most half of the time.
        """
        began, turn = time.monotonic(), self._spent
        end = _step(steps, None)
        while end is None:
            if between is not None and self._spent >= turn:
                before = self._spent
                await between()
                turn = self._spent + (self._spent - before)
            await asyncio.sleep(self._free_at - time.monotonic())
            step_began = time.monotonic()
            end = await asyncio.to_thread(_step, steps, step_began - began > seconds)
            took = time.monotonic() - step_began
            self._free_at = step_began + took + IDLE_FACTOR * took
            self._spent += took + IDLE_FACTOR * took
            self._metrics.forecast.observe(took)
        return end.value

    async def _until_due(self) -> None:
        """Wait for news, or until something is due without news. Before the first decisions nothing is due."""
        due = (
            min(self.what_ifs.next_at_monotonic(), self.queue_positions.next_at_monotonic())
            if self._planner.decided is not None
            else inf
        )
        wait = due - time.monotonic()
        await wait_with_timeout(self._news, max(LEAST_PAUSE_SECONDS, wait) if wait < inf else None)


@dataclass(frozen=True, slots=True)
class _End(Generic[T]):
    """Stands for the end of the steps, because a StopIteration cannot leave a thread."""

    value: T


def _step(steps: Steps[T], enough: bool | None) -> _End[T] | None:
    """Make the next step; returns the end, if it was the last one."""
    try:
        steps.send(enough)
    except StopIteration as end:
        return _End(end.value)
    return None
