"""Carries out one `Plan` for one job: the writes, in an order in which a replica that takes over can finish them.

Each write is conditional (deterministic name, UID or resourceVersion). The API server's answer goes into the stores at
once, so that the next pass sees it before the watch does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from secrets import token_urlsafe
from typing import Any

from elastic_api.job import PLURAL
from elastic_api.ports import master_port
from elastic_api.status import JobStatus
from elastic_api.template import main_container
from elastic_api.what_if import ONCE
from elastic_operator.build.names import service_name
from elastic_operator.build.network_policy import build_network_policy
from elastic_operator.build.pod import build_pod
from elastic_operator.build.request import BuildSettings
from elastic_operator.build.secret import build_secret
from elastic_operator.build.service import build_endpoint_slice, build_service
from elastic_operator.cluster import apply, objects
from elastic_operator.cluster.errors import (
    ApiError,
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    PodRefused,
    Unreachable,
    refuses_pod,
)
from elastic_operator.cluster.events import EventRecorder
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.stores import Stores
from elastic_operator.plan.facts.decisions import CreatePod, DeletePod, Event, Membership, Plan, Route
from elastic_operator.plan.facts.job import Job, OwnPod
from elastic_operator.plan.job.counts import with_created
from elastic_operator.read.dropped_fields import Unkept
from elastic_worker import contract

log = logging.getLogger(__name__)

MOST_SERVICES = 8
"""Services created at once (28). The API server creates them one by one; more would only run into their time limit."""

MOST_PODS = 32
"""Pods created at once: as many as the writes under way (28). A manifest that only waits for its turn takes
up to 1 MB.
"""

TOKEN_BYTES = 32
TELL_TRIES = 5
"""Tries to write a master's annotation: a kubelet writes a pod that starts several times within a second."""


def _nobody(_job: Job, _status: JobStatus) -> None:
    """For an actor whose status writes nobody counts."""


class Actor:
    """Does what plans say. `written` is called for each status that was written, with the job as it was before.

    `unkept` are the fields of jobs' statuses that the API server drops.
    """

    def __init__(
        self,
        session: Session,
        stores: Stores,
        events: EventRecorder,
        build: BuildSettings,
        *,
        written: Callable[[Job, JobStatus], None] = _nobody,
    ) -> None:
        self._written = written
        self.unkept = Unkept(PLURAL)
        self.session, self.stores, self.events, self.build = session, stores, events, build
        self._services = asyncio.Semaphore(MOST_SERVICES)
        self._pods, self._building = asyncio.Semaphore(MOST_PODS), asyncio.Lock()

    async def carry_out(
        self,
        job: Job,
        plan: Plan,
        *,
        written: dict[str, Any],
        may_create: bool,
        sent: set[str],
        tells: bool = True,
        pods: Callable[[], Iterable[OwnPod]] = tuple,
    ) -> None:
        """Carry out the plan; `written` is the status as the API server has it. Raises what the cluster layer raises.

        `sent` collects the names of pods that may have been created, whatever becomes of the rest (48).
        """
        if plan.commit_first:
            if not await self._write_status(job, plan, written):
                return
            self.tell(job, plan.events)
        told = [self._tell_master(job, plan.membership)] if plan.membership is not None else []
        await self._together([*told, *(self._delete(job, pod) for pod in plan.deletes)])
        if plan.creates and may_create:
            await self._create_all(job, plan.creates, sent)
            plan = replace(plan, status=with_created(plan.status, job, plan.creates, pods()))
        if plan.route is not None:
            await self._route(job, plan.route)
        if tells and not plan.commit_first and await self._write_status(job, plan, written):
            self.tell(job, plan.events)
        if plan.delete_job:
            await self._delete_job(job)

    async def _delete_job(self, job: Job) -> None:
        """Delete a job whose time is over. One that was made for a question stays if somebody edits it meanwhile, or
        takes the annotation away.
        """
        body = self.stores.jobs.get(job.uid)
        if body is None:
            return
        is_edited = body.metadata.generation != job.generation or body.metadata.annotations.what_if != ONCE
        if job.asks and is_edited:
            return
        version = body.metadata.resource_version if job.asks else None
        why = "it was made for a question only" if job.asks else "ttlSecondsAfterFinished is over"
        log.info("job=%s deleted: %s", job.key, why)
        await apply.delete_job(self.session, job.namespace, job.name, uid=job.uid, version=version)

    def tell(self, job: Job, events: Iterable[Event]) -> None:
        """Log the events, and queue them to be written."""
        for event in events:
            log.info("job=%s event=%s message=%r", job.key, event.reason, event.message)
            self.events.record(job.namespace, job.name, job.uid, event)

    async def _together(self, calls: Sequence[Awaitable[None]]) -> None:
        """Run all at once; after all have ended, raise the first error."""
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _write_status(self, job: Job, plan: Plan, written: dict[str, Any]) -> bool:
        """Write the status. Returns whether the job still exists."""
        new = plan.status.model_dump(mode="json", by_alias=True, exclude_none=True)
        body = self.stores.jobs.get(job.uid)
        if body is None:
            return False
        try:
            answer = await apply.patch_job_status(
                self.session,
                job.namespace,
                job.name,
                resource_version=body.metadata.resource_version,
                old=written,
                new=new,
            )
        except NotFound:
            self.stores.jobs.observe_deleted(job.uid)
            return False
        except Conflict:
            await self._refresh(job)
            raise
        if answer is not None:
            self.unkept.learn(new, answer.get("status", {}))
            self.stores.jobs.observe(objects.decode(answer, objects.CustomObject))
            self._written(job, plan.status)
        return True

    async def _refresh(self, job: Job) -> None:
        """Somebody else wrote the job meanwhile: read it again before the next try."""
        try:
            answer = await apply.get_job(self.session, job.namespace, job.name)
        except NotFound:
            self.stores.jobs.observe_deleted(job.uid)
        else:
            self.stores.jobs.observe(objects.decode(answer, objects.CustomObject))

    async def _delete(self, job: Job, pod: DeletePod) -> None:
        log.info("job=%s pod=%s delete force=%s reason=%r", job.key, pod.name, pod.force, pod.reason)
        grace = 0 if pod.force else self._shortened_grace(job, pod)
        answer = await apply.delete_pod(self.session, job.namespace, pod.name, uid=pod.uid, grace_seconds=grace)
        if answer is None:
            self.stores.pods.observe_deleted(pod.uid)
        else:
            self.stores.pods.observe(answer)

    def _shortened_grace(self, job: Job, pod: DeletePod) -> int | None:
        """Today's ceiling for the grace of a pod that was made with a longer one, or by somebody else (95)."""
        known = self.stores.pods.get(pod.uid)
        if known is None or job.grace_ceiling is None:
            return None
        return job.grace_ceiling if known.spec.termination_grace_period_seconds > job.grace_ceiling else None

    async def _tell_master(self, job: Job, membership: Membership) -> None:
        """Write the membership. Tried again at once if somebody such as its kubelet wrote the pod, and not the
        annotation.
        """
        pod = self.stores.pods.get(membership.uid)
        for _ in range(TELL_TRIES):
            if pod is None:
                return
            try:
                answer = await apply.annotate_pod(
                    self.session,
                    job.namespace,
                    membership.name,
                    uid=membership.uid,
                    resource_version=pod.metadata.resource_version,
                    annotations={contract.ANNOTATION_MEMBERSHIP: membership.text},
                )
            except NotFound:
                self.stores.pods.observe_deleted(membership.uid)
                return
            except Conflict:
                before, pod = pod, await self._pod_now(job, membership)
                if pod is not None and pod.metadata.annotations.membership != before.metadata.annotations.membership:
                    raise
            else:
                log.info("job=%s pod=%s told who is to take part", job.key, membership.name)
                self.stores.pods.observe(answer)
                return

    async def _pod_now(self, job: Job, membership: Membership) -> objects.Pod | None:
        """The pod as it is now; None if it is gone."""
        try:
            pod = await apply.get_pod(self.session, job.namespace, membership.name)
        except NotFound:
            pod = None
        if pod is None or pod.metadata.uid != membership.uid:
            self.stores.pods.observe_deleted(membership.uid)
            return None
        self.stores.pods.observe(pod)
        return pod

    async def _ensure_secret(self, job: Job, creates: tuple[CreatePod, ...]) -> None:
        """Create the Secret with the first master, and again with each later one if it is missing, since users delete
        things.
        """
        assert job.spec is not None, "pods are created from a spec that could be read"
        if job.spec.is_elastic and any(create.role == contract.ROLE_MASTER for create in creates):
            secret = build_secret(job, token=token_urlsafe(TOKEN_BYTES), old=creates[0].old_secret)
            await apply.ensure_secret(self.session, secret)

    async def _create_all(self, job: Job, creates: tuple[CreatePod, ...], sent: set[str]) -> None:
        assert job.spec is not None, "pods are created from a spec that could be read"
        await self._ensure_secret(job, creates)
        service = self.stores.services.named(service_name(job.name), job.namespace)
        if self.build.network is not None:
            manifest = build_network_policy(job, self.build.network)
            is_new = service is None
            await apply.ensure_network_policy(self.session, manifest, job_uid=job.uid, is_new=is_new)
        if service is None or not apply.is_ours(service.metadata, job.uid):
            async with self._services:
                manifest = build_service(job, port=master_port(job.uid, job.spec))
                service = await apply.ensure_service(self.session, manifest, job_uid=job.uid)
            self.stores.services.observe(service)
        await self._together([self._create(job, create, service, sent) for create in creates])

    async def _create(self, job: Job, create: CreatePod, service: objects.Service, sent: set[str]) -> None:
        async with self._pods:
            await self._create_now(job, create, service, sent)

    async def _create_now(self, job: Job, create: CreatePod, service: objects.Service, sent: set[str]) -> None:
        assert job.spec is not None, "pods are created from a spec that could be read"
        template = job.spec.template_of(create.role)
        async with self._building:
            address, port = service.spec.cluster_ip, service.port
            manifest = build_pod(job, job.spec, create, service_ip=address, port=port, settings=self.build)
            await asyncio.sleep(0)  # a large template costs milliseconds; the watches get their turn
        name = manifest["metadata"]["name"]
        sent.add(name)  # without an answer it counts as used until the watch or a time limit tells
        try:
            pod = await apply.create_pod(self.session, manifest, job_uid=job.uid)
        except ClusterError as error:
            if not isinstance(error, Unreachable):
                sent.discard(name)
            raise_refusal(error, create.role, manifest, template)
            raise
        if not pod.metadata.labels.incarnation:
            await self._reject(job, pod, create.role)
        log.info("job=%s pod=%s created node=%s", job.key, name, create.node or "any")
        self.stores.pods.observe(pod)

    async def _reject(self, job: Job, pod: objects.Pod, role: str) -> None:
        """Delete a pod that was stored without its label: it would count as one of an earlier incarnation and be
        replaced for ever.
        """
        label, name = contract.LABEL_INCARNATION, pod.metadata.name
        await apply.delete_pod(self.session, job.namespace, name, uid=pod.metadata.uid, grace_seconds=0)
        message = f"pod {name} was stored without its label {label}: a mutating webhook removes it"
        raise PodRefused(Forbidden(message, status=403), role=role)

    async def _route(self, job: Job, route: Route) -> None:
        """Lead the job's Service to its master (6)."""
        service = self.stores.services.named(service_name(job.name), job.namespace)
        if service is None:
            return
        address = route.address or None
        manifest = build_endpoint_slice(
            job, service_ip=service.spec.cluster_ip, pod_ip=address, node=route.node, port=service.port
        )
        known = self.stores.slices.named(service_name(job.name), job.namespace)
        ensured = await apply.ensure_endpoint_slice(self.session, manifest, job_uid=job.uid, known=known)
        self.stores.slices.observe(ensured)


def raise_refusal(error: ClusterError, role: str, manifest: dict[str, Any], template: dict[str, Any]) -> None:
    """Raise PodRefused if the error is about the pod itself."""
    if isinstance(error, ApiError) and refuses_pod(error):
        ours = len(main_container(manifest)["env"]) - len(main_container(template).get("env") or ())
        raise PodRefused(error, role=role, own_variables=ours) from error
