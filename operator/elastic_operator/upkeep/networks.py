"""Brings the NetworkPolicies of running jobs in line with the settings, once, when this process begins to lead.

Those of jobs that get pods later are created with the pods.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from elastic_operator.build.network_policy import JobNetwork, build_network_policy
from elastic_operator.cluster import apply, objects
from elastic_operator.cluster.backoff import Backoff
from elastic_operator.cluster.errors import ApiError, ClusterError
from elastic_operator.cluster.session import Session

log = logging.getLogger(__name__)


async def renew(session: Session, network: JobNetwork, jobs: Iterable[objects.CustomObject]) -> None:
    """Bring one after the other in line. What the API server refuses is logged; all else is tried until it answers.

    An error of the operator's own is logged, too, and holds up no other job (88).
    """
    for job in jobs:
        try:
            await _until_answered(session, network, job.metadata)
        except Exception:
            log.exception("job=%s/%s its NetworkPolicy cannot be made", job.metadata.namespace, job.metadata.name)


async def _until_answered(session: Session, network: JobNetwork, job: objects.CustomMeta) -> None:
    backoff = Backoff()
    while True:
        try:
            manifest = build_network_policy(job, network)
            await apply.ensure_network_policy(session, manifest, job_uid=job.uid)
        except ApiError as error:
            log.warning("job=%s/%s its NetworkPolicy is not as it should be: %s", job.namespace, job.name, error)
            return
        except ClusterError as error:
            await asyncio.sleep(backoff.next(at_least=error.retry_after))
        else:
            return
