"""Finds the workers of a job that were evicted for foreign pods before the job's status said so (203).

The reservation of the foreign pod names its victims, and is written before they are evicted. So a new leader finds
there why the job's pod is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elastic_api.status import JobStatus
from elastic_operator.plan.facts.job import OwnPod, listed_workers
from elastic_operator.read.ledger import Ledger


def unwritten_evictions(status: JobStatus, pods: Sequence[OwnPod], ledger: Ledger) -> Mapping[str, str]:
    """The evicted workers (uids) that the stored `status` lists as alive, each with the name of the foreign pod.

    `pods` are the job's existing pods. A listed worker that has ended was not evicted: it is deleted for its failure,
    and counts as lost already. Nor was a worker that the cluster ends, by a drain or by
    kube-scheduler.
    """
    gone = listed_workers(status) - {pod.uid for pod in pods if pod.deleting_since is None or pod.disrupted}
    found = {uid: ledger.preemptor_of(uid) for uid in sorted(gone)}
    return {uid: f"{pod.metadata.namespace}/{pod.metadata.name}" for uid, pod in found.items() if pod is not None}
