"""Carries out one `Plan` for one job: the writes, in an order in which a replica that takes over can finish them.

Each write is conditional (deterministic name, UID or resourceVersion). The API server's answer goes into the stores at
once, so that the next pass sees it before the watch does.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace

from elastic_api.job import PLURAL
from elastic_api.status import JobStatus
from elastic_api.what_if import ONCE
from elastic_operator.build.request import BuildSettings
from elastic_operator.cluster import api_requests, objects, pod_requests
from elastic_operator.cluster.errors import Conflict, NotFound, Outdated
from elastic_operator.cluster.events import EventRecorder, job_subject
from elastic_operator.cluster.pruned_fields import PrunedFields
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.stores import Stores
from elastic_operator.cluster.write_queue import Urgency
from elastic_operator.loop.writes.create import Creator, gather_all
from elastic_operator.loop.writes.master import Masters
from elastic_operator.plan.facts.decisions import DeletePod, Event, Plan
from elastic_operator.plan.facts.job import Job, OwnPod
from elastic_operator.plan.job.counts import with_created

log = logging.getLogger(__name__)


Gate = Callable[[], Awaitable[bool]]
"""Awaited before the first write of a plan. If its result is False, the plan is dropped."""


@dataclass(frozen=True, slots=True)
class Work:
    """A plan under way, and the job's status as the API server has it.

    `writes_status`: the job's status is among the writes. If the plan succeeds, the job's failed writes are forgotten,
    if they are still as many as `clears`; None: it is only a part of a plan. `sent` collects the names of pods that may
    have been created, even if another write fails (48).
    """

    job: Job
    plan: Plan
    stored_status: objects.Packed
    writes_status: bool = True
    clears: int | None = None
    gate: Gate | None = None
    sent: set[str] = field(default_factory=set)


@dataclass(eq=False, repr=False)
class PlanExecutor:
    """Carries out plans."""

    session: Session
    stores: Stores
    events: EventRecorder
    build: BuildSettings
    on_status_written: Callable[[Job, JobStatus], None] = lambda _job, _status: None
    """Called for each status that was written, with the job as it was before."""

    def __post_init__(self) -> None:
        self._creator = Creator(self.session, self.stores, self.build)
        self._masters = Masters(self.session, self.stores)
        self.pruned_fields = PrunedFields(PLURAL)
        """The fields of jobs' statuses that the API server drops."""

    async def carry_out(self, work: Work, pods: Callable[[], Iterable[OwnPod]]) -> None:
        """Carry out the plan; `pods` are the job's pods that still exist. Raises the errors of the cluster layer."""
        job, plan, stored_status = work.job, work.plan, work.stored_status
        if plan.write_status_first and not await self._write_status(job, plan, stored_status):
            return
        writes = [self._masters.write_membership(job, plan.membership)] if plan.membership is not None else []
        await gather_all([*writes, *(self._delete(job, pod) for pod in plan.deletes)], of=job.key)
        if plan.creates:
            await self._creator.create_all(job, plan.creates, work.sent)
            plan = replace(plan, status=with_created(plan.status, job, plan.creates, pods()))
        if plan.route is not None:
            await self._masters.write_endpoint_slice(job, plan.route)
        if work.writes_status and not plan.write_status_first:
            await self._write_status(job, plan, stored_status)
        if plan.delete_job:
            await self._delete_job(job)

    async def _write_status(self, job: Job, plan: Plan, stored: objects.Packed) -> bool:
        """Write the plan's status, and record its events. Returns whether the job still exists.

        The write names the newest known resourceVersion, and not the one that the decision was made from: an edit of
        the job meanwhile wakes the loop anyway.

        Raises the errors of the cluster layer, and Outdated if the status is not `stored` any more: a late write
        of the last leader has changed it. After a Conflict the job has been read again.
        """
        new, stored_status = plan.status.model_dump(mode="json", by_alias=True, exclude_none=True), stored.unpack()
        body = self.stores.jobs.get(job.uid)
        if body is None:
            return False
        if body.status.unpack() != stored_status:
            raise Outdated("the status has changed since the decision")
        try:
            answer = await api_requests.patch_job_status(
                self.session,
                job.namespace,
                job.name,
                resource_version=body.metadata.resource_version,
                stored_status=stored_status,
                new=new,
                urgency=Urgency.BEFORE_DELETE if plan.write_status_first and plan.deletes else Urgency.CHANGE,
            )
        except NotFound:
            self.stores.jobs.observe_deleted(job.uid)
            return False
        except Conflict:
            await self._read_again(job)
            raise
        if answer is not None:
            self.pruned_fields.compare(new, answer.get("status", {}))
            self.stores.jobs.observe(objects.decode(answer, objects.CustomObject))
            self.on_status_written(job, plan.status)
        self.record_events(job, plan.events)
        return True

    async def _read_again(self, job: Job) -> None:
        """Read the job again before the next try, because somebody else has written it."""
        try:
            answer = await api_requests.get_job(self.session, job.namespace, job.name)
        except NotFound:
            self.stores.jobs.observe_deleted(job.uid)
        else:
            self.stores.jobs.observe(objects.decode(answer, objects.CustomObject))

    async def _delete_job(self, job: Job) -> None:
        """Delete a job whose time is over. One that was made for a question stays if it is edited or its annotation
        removed meanwhile.
        """
        body = self.stores.jobs.get(job.uid)
        if body is None:
            return
        is_edited = body.metadata.generation != job.generation or body.metadata.annotations.what_if != ONCE
        if job.is_what_if and is_edited:
            return
        version = body.metadata.resource_version if job.is_what_if else None
        why = "it was made for a question only" if job.is_what_if else "ttlSecondsAfterFinished is over"
        log.info("deleting the job job=%s reason=%r", job.key, why)
        try:
            left = await api_requests.delete_job(self.session, job.namespace, job.name, uid=job.uid, version=version)
        except Conflict:
            await self._read_again(job)
            return
        if left is None:
            self.stores.jobs.observe_deleted(job.uid)
        else:
            self.stores.jobs.observe(objects.decode(left, objects.CustomObject))

    def record_events(self, job: Job, events: Iterable[Event]) -> None:
        """Log the events, and queue them to be written."""
        for event in events:
            log.info("event recorded job=%s event=%s message=%r", job.key, event.reason, event.message)
            self.events.record(job_subject(job.namespace, job.name, job.uid), event)

    async def _delete(self, job: Job, pod: DeletePod) -> None:
        log.info("deleting a pod job=%s pod=%s force=%s reason=%r", job.key, pod.name, pod.force, pod.reason)
        grace = 0 if pod.force else self._shortened_grace(job, pod)
        answer = await pod_requests.delete_pod(self.session, job.namespace, pod.name, uid=pod.uid, grace_seconds=grace)
        if answer is None:
            self.stores.pods.observe_deleted(pod.uid)
        else:
            self.stores.pods.observe(answer)

    def _shortened_grace(self, job: Job, pod: DeletePod) -> int | None:
        """The present ceiling for the grace of a pod that was created with a longer one, or by somebody else (95)."""
        stored, ceiling = self.stores.pods.get(pod.uid), job.context.grace_ceiling
        if stored is None or ceiling is None or stored.spec.termination_grace_period_seconds <= ceiling:
            return None
        return ceiling
