"""Creates a plan's pods, and decides whether a refusal is about the pod itself.

Before the pods come the objects by which the pods of a job meet: its Service, its NetworkPolicy, and the Secret of
Elastic jobs. `master` writes the master's address into the EndpointSlice of the Service.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from secrets import token_urlsafe
from typing import Any

from elastic_api.ports import master_port
from elastic_api.template import main_container
from elastic_operator.build.elastic_pod import build_secret
from elastic_operator.build.names import service_name
from elastic_operator.build.network_policy import build_network_policy
from elastic_operator.build.pod import build_pod
from elastic_operator.build.request import BuildSettings
from elastic_operator.build.service import build_service
from elastic_operator.cluster import api_requests, objects, pod_requests
from elastic_operator.cluster.errors import (
    ApiError,
    ClusterError,
    Outdated,
    PodRefused,
    has_unknown_outcome,
    refuses_pod,
    severity,
)
from elastic_operator.cluster.session import MAX_WRITES, Session
from elastic_operator.cluster.stores import Stores
from elastic_operator.plan.facts.decisions import NewPods, Slot
from elastic_operator.plan.facts.job import Job
from elastic_worker import contract

log = logging.getLogger(__name__)

MAX_PODS_AT_ONCE = MAX_WRITES
"""The most pods created at once, as many as writes in flight (28): a manifest that waits takes up to 1 MB."""
MAX_SERVICES_AT_ONCE = 8
"""The most Services created at once (28). The API server creates them one by one; more would run into their limit."""
TOKEN_BYTES = 32


class Creator:
    """Creates pods, after the objects by which they meet."""

    def __init__(self, session: Session, stores: Stores, build: BuildSettings) -> None:
        self._session, self._stores, self._build = session, stores, build
        self._pods, self._building = asyncio.Semaphore(MAX_PODS_AT_ONCE), asyncio.Lock()
        self._services = asyncio.Semaphore(MAX_SERVICES_AT_ONCE)

    async def create_all(self, job: Job, new: NewPods, sent: set[str]) -> None:
        """Create these pods of the job. Raises the errors of the cluster layer, and PodRefused.

        `sent` collects the names of pods that may have been created, even if another creation fails (48).
        """
        service = await self._ensure_network(job, new)
        await gather_all((self.create(job, new, slot, service, sent) for slot in new.slots), of=job.key)

    async def _ensure_network(self, job: Job, new: NewPods) -> objects.Service:
        """Create the missing objects by which these pods meet; returns the job's Service."""
        assert job.spec is not None, "pods are created from a spec that could be read"
        if job.spec.is_elastic and contract.ROLE_MASTER in new.roles:
            # A later master creates it again if somebody has deleted it.
            secret = build_secret(job, token=token_urlsafe(TOKEN_BYTES), old=new.old_secret)
            await api_requests.ensure_secret(self._session, secret)
        service = self._stores.services.named(service_name(job.name), job.namespace)
        if self._build.network is not None:
            manifest = build_network_policy(job, self._build.network)
            is_new = service is None
            await api_requests.ensure_network_policy(self._session, manifest, is_new=is_new)
        if service is None or not api_requests.is_ours(service.metadata, job.uid):
            async with self._services:
                manifest = build_service(job, port=master_port(job.uid, job.spec))
                service = await api_requests.ensure_service(self._session, manifest)
            self._stores.services.observe(service)
        return service

    async def create(self, job: Job, new: NewPods, slot: Slot, service: objects.Service, sent: set[str]) -> None:
        """Create the pod for one of the slots, when its turn comes. Raises Outdated if the job has a pod of that name
        and of another incarnation, which the store lacked.
        """
        assert job.spec is not None, "pods are created from a spec that could be read"
        template = job.spec.template_of(slot.role)
        async with self._pods:
            async with self._building:
                address, port = service.spec.cluster_ip, service.port
                manifest = build_pod(job, job.spec, new, slot, service_ip=address, port=port, settings=self._build)
                await asyncio.sleep(0)  # a large template costs milliseconds; the watches get their turn
            name = manifest["metadata"]["name"]
            sent.add(name)  # a pod without an answer counts until the watch shows it, or a time limit ends
            try:
                pod = await pod_requests.create_pod(self._session, manifest)
            except ClusterError as error:
                if not has_unknown_outcome(error):
                    sent.discard(name)
                raise_refusal(error, slot.role, manifest, template)
                raise
        self._stores.pods.observe(pod)
        if pod.metadata.labels.incarnation != str(new.incarnation):
            # A late creation of an earlier incarnation has the name. The next pass deletes that pod first.
            sent.discard(name)
            raise Outdated(f"pod {name} of incarnation {pod.metadata.labels.incarnation} exists")
        log.info("created a pod job=%s pod=%s node=%s", job.key, name, slot.node or "any")


async def gather_all(calls: Iterable[Awaitable[None]], *, of: str) -> None:
    """Run all calls at once, for the job `of` (`namespace/name`). After all of them have ended, raise the gravest
    error, with the longest wait that the API server asks for in any of the errors.

    One error of each other kind is logged, because many pods mostly fail in the same way.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    errors = sorted((result for result in results if isinstance(result, BaseException)), key=severity, reverse=True)
    kinds = {(type(error), severity(error)): error for error in reversed(errors)}
    for error in errors[1:]:
        if kinds[type(error), severity(error)] is error:
            own = None if isinstance(error, ClusterError) else error
            level = logging.INFO if own is None else logging.ERROR
            log.log(level, "another write for the job failed at the same time job=%s error=%s", of, error, exc_info=own)
    if not errors:
        return
    if isinstance(errors[0], ClusterError):
        waits = (error.retry_after for error in errors if isinstance(error, ClusterError))
        errors[0].retry_after = max((wait for wait in waits if wait is not None), default=None)
    raise errors[0]


def raise_refusal(error: ClusterError, role: str, manifest: dict[str, Any], template: dict[str, Any]) -> None:
    """Raise PodRefused if the error is about the pod itself."""
    if isinstance(error, ApiError) and refuses_pod(error):
        ours = len(main_container(manifest)["env"]) - len(main_container(template).get("env") or ())
        raise PodRefused(error, role=role, own_variables=ours) from error
