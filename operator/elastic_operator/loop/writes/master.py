"""Writes a master's address into the EndpointSlice of the job, and the participating pods into its annotation."""

from __future__ import annotations

import logging
from itertools import count

from elastic_operator.build.names import service_name
from elastic_operator.build.service import build_endpoint_slice
from elastic_operator.cluster import api_requests, objects, pod_requests
from elastic_operator.cluster.errors import Conflict, NotFound
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.stores import Stores
from elastic_operator.plan.facts.decisions import Membership, Route
from elastic_operator.plan.facts.job import Job
from elastic_worker.contract import ANNOTATION_MEMBERSHIP

log = logging.getLogger(__name__)

MAX_MASTER_TRIES = 5
"""The most tries to write a master's annotation: a kubelet writes a pod that starts several times within a second."""


class Masters:
    """Makes the writes for the masters of jobs. Raises the errors of the cluster layer."""

    def __init__(self, session: Session, stores: Stores) -> None:
        self._session, self._stores = session, stores

    async def write_endpoint_slice(self, job: Job, route: Route) -> None:
        """Write the job's EndpointSlice, by which its Service leads to this master and to no other pod (6)."""
        service = self._stores.services.named(service_name(job.name), job.namespace)
        if service is None:
            return
        address = route.address or None
        manifest = build_endpoint_slice(
            job, service_ip=service.spec.cluster_ip, pod_ip=address, node=route.node, port=service.port
        )
        known = self._stores.slices.named(service_name(job.name), job.namespace)
        ensured = await api_requests.ensure_endpoint_slice(self._session, manifest, known=known)
        self._stores.slices.observe(ensured)

    async def write_membership(self, job: Job, membership: Membership) -> None:
        """Write the participating pods into the master's annotation. If somebody, such as the kubelet, has changed the
        pod meanwhile, but not the annotation, the write is repeated at once.
        """
        pod = self._stores.pods.get(membership.uid)
        for tries in count(1):
            if pod is None:
                return
            try:
                answer = await pod_requests.annotate_pod(
                    self._session,
                    job.namespace,
                    membership.name,
                    uid=membership.uid,
                    resource_version=pod.metadata.resource_version,
                    annotations={ANNOTATION_MEMBERSHIP: membership.text},
                )
            except NotFound:
                self._stores.pods.observe_deleted(membership.uid)
                return
            except Conflict:
                before, pod = pod, await pod_requests.pod_now(self._session, self._stores.pods, pod.metadata)
                if pod is not None and (tries >= MAX_MASTER_TRIES or _membership_changed(pod, before)):
                    raise
            else:
                log.info("the master reads the new membership job=%s pod=%s", job.key, membership.name)
                self._stores.pods.observe(answer)
                return


def _membership_changed(pod: objects.Pod, before: objects.Pod) -> bool:
    return pod.metadata.annotations.membership != before.metadata.annotations.membership


def changed_route(stores: Stores, job: Job, wanted: Route | None) -> Route | None:
    """The route, if the Service exists and does not lead there yet."""
    name = service_name(job.name)
    if wanted is None or stores.services.named(name, job.namespace) is None:
        return None
    known = stores.slices.named(name, job.namespace)
    routes = [
        Route(address, endpoint.node_name or "")
        for endpoint in (known.endpoints if known is not None else None) or ()
        for address in endpoint.addresses
    ]
    return None if next(iter(routes), Route()) == wanted else wanted
