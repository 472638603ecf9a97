"""Creates the objects by which the pods of a job meet, before the pods: its Service, its NetworkPolicy, and the Secret
of Elastic jobs.

`master` writes the master's address into the EndpointSlice of the Service.
"""

from __future__ import annotations

import asyncio
from secrets import token_urlsafe

from elastic_api.ports import master_port
from elastic_operator.build.elastic_pod import build_secret
from elastic_operator.build.names import service_name
from elastic_operator.build.network_policy import JobNetwork, build_network_policy
from elastic_operator.build.service import build_service
from elastic_operator.cluster import api_requests, objects
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.stores import Stores
from elastic_operator.plan.facts.decisions import CreatePod
from elastic_operator.plan.facts.job import Job
from elastic_worker.contract import ROLE_MASTER

MAX_SERVICES_AT_ONCE = 8
"""The most Services created at once (28). The API server creates them one by one, and more would only run into their
time limit.
"""

TOKEN_BYTES = 32


class Networking:
    """Creates these objects. Without a `network` jobs have no NetworkPolicy."""

    def __init__(self, session: Session, stores: Stores, network: JobNetwork | None) -> None:
        self._session, self._stores, self._network = session, stores, network
        self._services = asyncio.Semaphore(MAX_SERVICES_AT_ONCE)

    async def ensure(self, job: Job, creates: tuple[CreatePod, ...]) -> objects.Service:
        """Create the missing objects for these pods; returns the job's Service. Raises the errors of the cluster
        layer.
        """
        assert job.spec is not None, "pods are created from a spec that could be read"
        await self._ensure_secret(job, creates)
        service = self._stores.services.named(service_name(job.name), job.namespace)
        if self._network is not None:
            manifest = build_network_policy(job, self._network)
            is_new = service is None
            await api_requests.ensure_network_policy(self._session, manifest, is_new=is_new)
        if service is None or not api_requests.is_ours(service.metadata, job.uid):
            async with self._services:
                manifest = build_service(job, port=master_port(job.uid, job.spec))
                service = await api_requests.ensure_service(self._session, manifest)
            self._stores.services.observe(service)
        return service

    async def _ensure_secret(self, job: Job, creates: tuple[CreatePod, ...]) -> None:
        """Create the Secret with the first master, and again with a later one if somebody has deleted it."""
        assert job.spec is not None, "pods are created from a spec that could be read"
        if job.spec.is_elastic and any(create.role == ROLE_MASTER for create in creates):
            secret = build_secret(job, token=token_urlsafe(TOKEN_BYTES), old=creates[0].old_secret)
            await api_requests.ensure_secret(self._session, secret)
