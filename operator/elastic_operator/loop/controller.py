"""The control loop: wake, read, decide, write (kueue: a cycle of the scheduler, then a reconcile for each job). A pass
returns when the next one is due.

A pass awaits nothing, so it sees one state of the stores: the planner observes the jobs and allocates for all of them,
the reconciler has each job's plan carried out, and the nominator keeps places for foreign pods. Every ten minutes the
operator decides about everything again, even without an event.

If many objects are new, the controller reads them before the pass, and lets other tasks of the event loop run in
between.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import NamedTuple

from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.waiting import cancel_and_wait, wait_for_first, wait_with_timeout
from elastic_operator.cluster.write_queue import WriteQueue
from elastic_operator.loop import reconciler
from elastic_operator.loop.batching import LONGEST_FOR_CREATIONS_SECONDS, Batching, longest_backed_up
from elastic_operator.loop.forecast.forecasts import Forecasts
from elastic_operator.loop.reclaim.dry_runs import DryRuns
from elastic_operator.loop.reclaim.eviction_limiter import EvictionLimiter
from elastic_operator.loop.reclaim.nominator import Nominator
from elastic_operator.loop.reclaim.reclaim_reporter import ReclaimReporter
from elastic_operator.loop.reconciler import RESYNC_SECONDS, Reconciler
from elastic_operator.loop.store_view import StoreView
from elastic_operator.memory import PerJobMemory
from elastic_operator.metrics import Metrics
from elastic_operator.metrics.counters import PassReason
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.planner import PassDecisions, Planner
from elastic_operator.pods.failure_logs import FailureLogs

log = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS = 120.0
"""The longest time between two passes. While nothing changes, a pass costs next to nothing. Such a pass finds work that
is due at a time which no part of the operator has announced.
"""
LEAST_WAIT_SECONDS = 0.01
"""The least time between two passes, so that the watches, the writes and the probes run in between."""
AFTER_ERROR_SECONDS = 1.0
"""The pause after a failed pass, whatever changes meanwhile: the next pass reads everything again, and may fail again.
"""
BETWEEN_SLICES_SECONDS = 1.0
"""The time between two slices of a resync. Each slice decides again on as many jobs as one pass makes plans for."""


class WakeUp(NamedTuple):
    """The next pass: when it is due (monotonic) if no event wakes it, and why."""

    due_monotonic: float
    reason: PassReason


@dataclass(kw_only=True, eq=False, repr=False)
class Controller:
    """Decides for all jobs, and has the decisions carried out."""

    view: StoreView
    planner: Planner
    reconciler: Reconciler
    limiter: EvictionLimiter
    nominator: Nominator
    dry_runs: DryRuns
    forecasts: Forecasts
    logs: FailureLogs
    reclaim_reporter: ReclaimReporter
    metrics: Metrics
    clock: ServerClock
    awake: asyncio.Event
    """Set when something has changed."""
    on_decisions: Callable[[PassDecisions], None]
    """Called at the end of each pass with its decisions."""
    of_jobs: Sequence[PerJobMemory]
    writes: WriteQueue

    def __post_init__(self) -> None:
        self._stepped = self.clock.stepped
        self._resync_at_monotonic = 0.0
        self.last_pass, self._batching = time.monotonic(), Batching()
        self._to_resync: list[str] = []
        self._present: Collection[str] | None = None
        """The jobs (uids) that existed when deleted jobs were last forgotten."""

    def wake(self) -> None:
        """Have a pass made, because something has changed."""
        self.awake.set()

    async def run(self) -> None:
        """Make passes until cancelled. Plans under way are cancelled, too."""
        self.last_pass, self._batching = time.monotonic(), Batching()  # a standby has made no passes (212)
        self.view.reader.external_changes.note_change()
        forecasting, woken_by = asyncio.create_task(self.forecasts.run()), PassReason.START
        try:
            while True:
                self.metrics.passes_by_reason.labels(woken_by).inc()
                self.awake.clear()
                await self._read_ahead()
                started = time.monotonic()
                wake_up = self._guarded_pass()
                took = (ended := time.monotonic()) - started
                self.writes.note_standstill(took)  # answers that came meanwhile seem later (210)
                await asyncio.sleep(took)  # leave half of the time to the watches and writes in a storm
                if wake_up is None:
                    woken_by = PassReason.ERROR
                    await asyncio.sleep(AFTER_ERROR_SECONDS)
                    continue
                await asyncio.sleep(self._batching.delay(took, woken=self.awake.is_set(), now=time.monotonic()))
                await self._wait_for_writes(ended, took)
                await wait_with_timeout(self.awake, wake_up.due_monotonic - time.monotonic())
                woken_by = PassReason.EVENT if self.awake.is_set() else wake_up.reason
                log.debug("the next pass begins, reason=%s", woken_by)
        finally:
            forecasting.cancel()
            await self.reconciler.stop()
            await self.nominator.stop()
            await self.dry_runs.stop()
            await self.logs.stop()
            await cancel_and_wait([forecasting])

    async def _wait_for_writes(self, ended: float, took: float) -> None:
        """Wait while writes of the passes so far are queued. The last pass `ended` (monotonic) after `took` seconds.

        A job that is new, edited or ended does not wait for creations. New jobs that are placed in one pass would each
        get their first pod before any of them grows, and so spread over more nodes than one after the other.
        """
        await wait_for_first(
            self.writes.until_no_creation_waits(),
            self.view.reader.external_changes.noted.wait(),
            seconds=ended + LONGEST_FOR_CREATIONS_SECONDS - time.monotonic(),
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_backed_up(took)):
                await self.writes.until_not_backed_up()

    async def close(self) -> None:
        """Unsubscribe from the stores, which live longer than this controller."""
        await self.logs.stop()
        self.view.close()

    async def _read_ahead(self) -> None:
        """If many objects are new, read them for the next pass, and let the watches and writes run in between."""
        try:
            for _ in self.view.reader.foreign_pods.read_ahead(self.clock.time()):
                await asyncio.sleep(0)
        except Exception:  # an error at a pod comes again in the pass, which logs it
            log.debug("reading pods ahead failed; the next pass reads all at once", exc_info=True)
        await self.read_jobs_ahead()

    async def read_jobs_ahead(self) -> None:
        """If many jobs are new or changed, read them for the next pass, and let other tasks run in between. A standby
        calls this too, so that its first pass as the leader need not read all jobs (212).
        """
        try:
            self._forget_deleted()
            with closing(self.planner.jobs.read_ahead(self.view.refresh_contexts(self.clock.time()))) as reading:
                for _ in reading:
                    await asyncio.sleep(0)
        except Exception:  # an error at a job comes again in the pass, which logs it
            log.debug("reading jobs ahead failed; the next pass reads all at once", exc_info=True)

    def _guarded_pass(self) -> WakeUp | None:
        """Make one pass; returns as `run_pass`, or None if it failed."""
        try:
            wake_up = self.run_pass()
        except Exception:
            self.metrics.pass_errors.inc()
            log.exception("pass failed; the next pass reads all stores again")
            self.forget()
            return None
        self.last_pass = time.monotonic()
        return wake_up

    def run_pass(self) -> WakeUp:
        """Make one pass; returns when and why the next pass is due if no event wakes it."""
        with self.metrics.passes.time():
            now, began = self.clock.time(), time.monotonic()
            if self.clock.stepped != self._stepped:
                self._stepped = self.clock.stepped
                self.forget()  # the step may have made waits too long (29)
            if began >= self._resync_at_monotonic:
                self._resync()
            decisions = self.planner.decide(self.view.refresh(now), self.limiter)
            allocation = decisions.allocation
            if decisions.is_new:
                self.forecasts.note_allocation()
                self.reconciler.reason_messages.note_allocation()
                self._report_safely(lambda: self._take_note(decisions))
            self._forget_deleted()
            self._keep_places(allocation, now)
            self.reconciler.plan_all(decisions, now)
            self.dry_runs.start_next()
            self.reconciler.renew_messages(decisions, now, in_storm=self._batching.in_storm)
            self._report_safely(lambda: self.on_decisions(decisions))
        return self._next_wake_up(decisions, began_monotonic=began, began_epoch=now)

    def _next_wake_up(self, decisions: PassDecisions, *, began_monotonic: float, began_epoch: float) -> WakeUp:
        """When the next pass is due without an event. A new source of such times adds a line here."""
        reader, now_monotonic = self.view.reader, time.monotonic()
        due = {
            PassReason.ALLOCATION: began_monotonic + (decisions.until_epoch - began_epoch),
            PassReason.FOREIGN_PODS: began_monotonic + (reader.foreign_pods.again_at_epoch - began_epoch),
            PassReason.PLAN: self.reconciler.next_due_monotonic(began_monotonic),
            PassReason.QUARANTINE: reader.quarantine.next_end_monotonic(),
            PassReason.DRY_RUN: self.dry_runs.answers.next_end_monotonic(),
            PassReason.RESYNC: self._resync_at_monotonic,
            PassReason.LEDGER: now_monotonic + reader.ledger.seconds_until_expiry(),
            PassReason.LONGEST_WAIT: now_monotonic + LONGEST_WAIT_SECONDS,
        }
        reason = min(due, key=due.__getitem__)
        return WakeUp(max(now_monotonic + LEAST_WAIT_SECONDS, due[reason]), reason)

    def _report_safely(self, report: Callable[[], None]) -> None:
        """Report the decisions. An error in a report must not keep any job from its pods (88)."""
        try:
            report()
        except Exception:
            self.metrics.pass_errors.inc()
            log.exception("cannot report the decisions of this pass; they are carried out")

    def _take_note(self, decisions: PassDecisions) -> None:
        """Count and log the new allocation."""
        allocation = decisions.allocation
        if decisions.error is not None:
            self.metrics.pass_errors.inc()
            text = "the look-ahead or the DryRun allocation failed; the allocation is used without it"
            log.error(text, exc_info=decisions.error)
        if decisions.stopped is None:
            self.reclaim_reporter.report_futile(decisions.inputs, allocation.still_futile)
        if decisions.report_only is not None:
            self.reclaim_reporter.would_reclaim(decisions.report_only)
        self.reclaim_reporter.note_allocation(decisions.inputs, allocation)

    def _forget_deleted(self) -> None:
        """Have all memories forget deleted jobs, if a job was deleted or everything is decided again."""
        present = self.view.jobs()
        if present is not self._present:  # unchanged means identical (23)
            self._present = present
            for memory in self.of_jobs:
                memory.forget_deleted(present)

    def _keep_places(self, allocation: Allocation, now: float) -> None:
        """Keep places for foreign pods, and report the pods that get none."""
        foreign_pods = self.view.reader.foreign_pods
        self.nominator.take(allocation.nominations, expired=foreign_pods.expired, renewable=foreign_pods.renewable)
        over_limit = {one.demand.uid for one in allocation.over_eviction_limit}
        first_backoffs = foreign_pods.note_served(allocation.nominations, over_limit, allocation.tried_gangs, now)
        self._report_safely(lambda: self.reclaim_reporter.no_room(first_backoffs))

    def _resync(self) -> None:
        """Decide everything again: the allocation at once, and the plans some jobs at a time."""
        if not self._to_resync and self.planner.decided is not None:  # else nothing is remembered
            self._to_resync = [body.metadata.uid for body in self.view.reader.stores.jobs]
            self.planner.forget_allocation()
            self._present = None
        most = reconciler.MAX_PLANS
        some, self._to_resync = self._to_resync[:most], self._to_resync[most:]
        self.view.read_again(some)
        self.planner.jobs.requeue(some)
        self._resync_at_monotonic = time.monotonic() + (BETWEEN_SLICES_SECONDS if self._to_resync else RESYNC_SECONDS)

    def forget(self) -> None:
        """Forget all that was read and decided. The next pass reads and decides everything again."""
        self.view.forget()
        self.planner.forget()
