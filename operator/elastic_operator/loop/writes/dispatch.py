"""Hands plans to the executor: one at a time per job, and only if it has writes and the job's next try is due
(controller-runtime: the workqueue, with one worker per key). While the API server refuses a job's pods, only their
creation waits for the next try.

`start` does not queue a plan that it cannot begin. It returns the delay in seconds until the job is planned again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from elastic_api.refusal import pod_blocked
from elastic_operator.cluster import objects
from elastic_operator.cluster.errors import ApiError, ClusterError, PodRefused, RetryPolicy, ServerError
from elastic_operator.cluster.waiting import cancel_and_wait
from elastic_operator.loop.writes.failed_writes import EVENT_ATTEMPTS, FailedWrites, in_words
from elastic_operator.loop.writes.plan_executor import Gate, PlanExecutor, Work
from elastic_operator.loop.writes.status_times import MESSAGE_SECONDS, StatusTimes
from elastic_operator.metrics import Metrics
from elastic_operator.plan.facts.decisions import Event, EventReason, Plan
from elastic_operator.plan.facts.job import Job
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.shapes import Shapes

log = logging.getLogger(__name__)

NOT_FRESH_SECONDS = 1.0
"""While the stores are too old to decide on creations, a job is decided on again after this time."""
LOGGED_ATTEMPTS = 20
"""Of a job's failed writes in a row, these are logged: the first, the one with the event, and one in this many."""


@dataclass(kw_only=True, eq=False, repr=False)
class Dispatcher:
    """The plans under way."""

    executor: PlanExecutor
    shapes: Shapes
    ledger: Ledger
    failed_writes: FailedWrites
    metrics: Metrics
    is_fresh: Callable[[], bool]
    """Whether the stores are recent enough to create pods."""
    on_done: Callable[[str], None]
    """Called with a job's uid when its plan is carried out or has failed."""
    on_internal_error: Callable[[str, Exception], object]
    """Called with a job's uid and an error of the operator's own that made its plan fail."""
    on_pods_created: Callable[[str], None] = lambda _: None
    on_pod_rejected: Callable[[Job], None] = lambda _: None

    def __post_init__(self) -> None:
        self._busy: dict[str, asyncio.Task[None]] = {}
        self.status_times = StatusTimes(self.executor.pruned_fields)

    def busy(self, uid: str) -> bool:
        return uid in self._busy

    def wait(self, uid: str, now: float) -> float:
        """Seconds from `now` (monotonic) until a plan can be started for the job; inf while one is under way."""
        return inf if self.busy(uid) else self.failed_writes.failed_write(uid).wait_without_creations(now)

    async def stop(self) -> None:
        """Cancel the plans under way."""
        await cancel_and_wait(self._busy.values())

    def start(
        self,
        body: objects.CustomObject,
        job: Job,
        plan: Plan,
        begin_gate: Callable[[], Gate | None] = lambda: None,
    ) -> float:
        """Start to carry the plan out, if it has writes. Returns the seconds until the operator decides on the job
        again; inf if nothing is due until `on_done` is called or a store changes.

        If the job waits for its next try because its pods are refused, the plan is carried out without its creations.

        `begin_gate` is called if the plan begins now.
        """
        uid = job.uid
        if uid in self._busy:
            return inf
        original, delay = plan, self._status_delay(body, plan)
        if delay > 0 and not _writes_more_than_status(plan):
            return delay
        failed, now = self.failed_writes.failed_write(uid), time.monotonic()
        is_whole = True
        if (wait := failed.wait(now)) > 0:
            others = replace(plan, creates=None)
            if _writes_more_than_status(others):
                wait = failed.wait_without_creations(now)
            if wait > 0:
                return min(wait, self._write_status_only(body, job, plan))
            plan, is_whole = others, plan.creates is None
        if plan.creates and not self.is_fresh():
            plan, is_whole = replace(plan, creates=None), False
        if plan.creates is not original.creates:
            delay = self._status_delay(body, plan)
            if delay > 0 and not _writes_more_than_status(plan):
                return min(delay, NOT_FRESH_SECONDS)
        clears = failed.attempts.times if is_whole else None
        work = Work(job, plan, body.status, delay <= 0, clears, begin_gate())
        self._assume(job, plan)  # last: nothing forgets these pods if the plan is not begun
        self._begin(work)
        return inf

    def _status_delay(self, body: objects.CustomObject, plan: Plan) -> float:
        """Seconds for which the plan's status can wait. If the plan creates or deletes pods, it is written at once."""
        return 0.0 if plan.creates or plan.deletes else self.status_times.write_delay(body, plan)

    def _write_status_only(self, body: objects.CustomObject, job: Job, plan: Plan) -> float:
        """Write the status of a job that waits for its next try, so that the status says why the job waits. All
        decisions about the job wait for the next try.

        The events of the plan are recorded with the status, because the next plan starts from the written status and
        has these events no more.

        The status is written so at most every few seconds. If this write fails, too, for example because the API server
        refuses connections, the status waits for the next try. While the API server asks for patience, this write waits
        as well.
        """
        only = Plan(status=plan.status, events=plan.events)
        delay = inf if plan.write_status_first else self.status_times.write_delay(body, only)
        delay = max(delay, self.failed_writes.failed_write(job.uid).throttled_until - time.monotonic())
        delay = max(delay, self.status_times.status_only_delay(job.uid))
        if delay > 0:
            return delay
        self.status_times.note_status_only(job.uid, until=time.monotonic() + MESSAGE_SECONDS)
        self._begin(Work(job, only, body.status))
        return inf

    def _begin(self, work: Work) -> None:
        task = self._busy[work.job.uid] = asyncio.create_task(self._carry_out(work))
        task.add_done_callback(lambda _: self._end(work))

    def _end(self, work: Work) -> None:
        """Note the end or the cancellation of a plan. Assumed pods that were not sent hold no room any more (48).

        If the job was deleted, another job with its name may already create pods with these names.
        """
        job, assumed = work.job, self.ledger.assumed
        self._busy.pop(job.uid, None)
        planned = {slot.pod_name(job.name) for slot in work.plan.slots}
        for name in [pod.name for pod in assumed.of_job(job.uid) if pod.name in planned]:
            (assumed.await_seen if name in work.sent else assumed.forget)(job.namespace, name)
        self.on_done(job.uid)

    def _assume(self, job: Job, plan: Plan) -> None:
        """Count the room of the pods that are to be created as used, whatever the API server will answer (48)."""
        shapes = [self.shapes.shape(job, slot.role) for slot in plan.slots]  # first: one of them may raise
        for slot, shape in zip(plan.slots, shapes, strict=True):
            self.ledger.assumed.add(job, slot, shape)

    async def _carry_out(self, work: Work) -> None:
        job = work.job
        try:
            if work.gate is not None and not await work.gate():
                return
            if work.writes_status:
                self.status_times.note_written(job.uid, creates=bool(work.plan.creates))
            with self.metrics.reconcile.time():
                await self.executor.carry_out(work, lambda: self.ledger.own_pods(job.uid))
        except ClusterError as error:
            self.note(job, error)
            if not _writes_more_than_status(work.plan) and error.retry_policy is not RetryPolicy.DECIDE_AGAIN:
                next_try = self.failed_writes.failed_write(job.uid).attempts.until
                self.status_times.note_status_only(job.uid, until=next_try)
            if isinstance(error, PodRefused):
                self.on_pod_rejected(job)
        except Exception as error:  # noqa: BLE001 - its traceback goes to the log where the job is quarantined
            self.metrics.reconcile_errors.inc()
            self.on_internal_error(job.uid, error)
        else:
            if (
                work.clears == self.failed_writes.failed_write(job.uid).attempts.times
            ):  # else a dry run was refused (139)
                self.failed_writes.clear(job)
            if work.plan.creates:
                self.on_pods_created(job.uid)

    def note_refused_dry_run(self, job: Job, error: PodRefused, needed: bool) -> None:
        """Note that the API server would refuse the job's pods, for which pods of others were to be evicted.

        If the job needs its pods for its minimum, the refusal counts like a failed write.
        """
        if needed:
            self.note(job, error)
            return
        text = f"No pods are evicted for the job's growth: {pod_blocked(error.error.message)}"
        self.executor.record_events(job, [Event(EventReason.SCALE_UP_BLOCKED, text, "Warning")])

    def note(self, job: Job, error: ClusterError) -> None:
        """Count a failed try. Unless the error must not be reported, some failed tries are logged as warnings, and one
        gets an event.
        """
        failed = self.failed_writes.add(job, error, time.monotonic())
        if not error.retry_policy.is_reported:
            log.info("the plan ends early; the leader decides again job=%s reason=%s", job.key, error)
            return
        self.metrics.reconcile_errors.inc()
        tries = failed.attempts.times
        if tries in (1, EVENT_ATTEMPTS) or tries % LOGGED_ATTEMPTS == 0:
            log.warning("a write failed job=%s attempt=%d error=%s", job.key, tries, error)
        if tries == EVENT_ATTEMPTS and _is_about_the_job(error):
            self.executor.record_events(job, [Event(EventReason.WRITE_FAILED, in_words(error), "Warning")])


def _is_about_the_job(error: ClusterError) -> bool:
    """Whether the refusal is about the job's own objects. Its status may be one of them."""
    too_large = isinstance(error, ServerError) and "request is too large" in error.message
    return too_large or (isinstance(error, ApiError) and not error.retry_policy.is_transient)


def _writes_more_than_status(plan: Plan) -> bool:
    """Whether the plan has writes beside the job's status."""
    changes_pods = plan.deletes or plan.creates or plan.membership is not None
    return bool(changes_pods or plan.route is not None or plan.delete_job)
