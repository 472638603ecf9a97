"""Brings the NetworkPolicies of running jobs in line with the settings, once, when this process begins to lead.

The NetworkPolicies of jobs that get pods later are created with the pods.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from elastic_operator.build.network_policy import JobNetwork, build_network_policy
from elastic_operator.cluster import api_requests, objects
from elastic_operator.cluster.backoff import Backoff
from elastic_operator.cluster.errors import ClusterError
from elastic_operator.cluster.session import Session

log = logging.getLogger(__name__)


async def renew(session: Session, network: JobNetwork, jobs: Iterable[objects.CustomObject]) -> None:
    """Write all NetworkPolicies, one after the other. Writes that may succeed later are repeated at the end (88)."""
    unwritten, backoff = [job.metadata for job in jobs], Backoff()
    while True:
        unwritten = [job for job in unwritten if not await _try_write(session, network, job)]
        if not unwritten:
            return
        await asyncio.sleep(backoff.next())


async def _try_write(session: Session, network: JobNetwork, job: objects.CustomMeta) -> bool:
    """Write the job's NetworkPolicy; False if a later try may succeed. All other errors are logged."""
    try:
        manifest = build_network_policy(job, network)
        await api_requests.ensure_network_policy(session, manifest)
    except ClusterError as error:
        if error.retry_policy.is_transient:
            return False
        log.warning("cannot update the NetworkPolicy of a job job=%s/%s reason=%s", job.namespace, job.name, error)
    except Exception:
        log.exception("cannot build the NetworkPolicy of a job job=%s/%s", job.namespace, job.name)
    return True
