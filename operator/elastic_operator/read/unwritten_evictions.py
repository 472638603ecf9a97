"""Finds the workers of a job that were evicted for foreign pods before the job's status said so (203).

The node is reserved for the foreign pod before the eviction. So a new leader finds there why the job's pod is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elastic_api.status import JobStatus
from elastic_operator.plan.facts.job import OwnPod, listed_workers
from elastic_operator.read.foreign.reservation import BACKWARDS_SECONDS, reservation_of
from elastic_operator.read.ledger import Ledger

FOUND_SECONDS = 60.0
"""A pod that is found to be gone later than this after the end of the reservation counts as lost, and not as evicted.
A new leader decides within 20 s after the death of the last one.
"""


def unwritten_evictions(status: JobStatus, pods: Sequence[OwnPod], ledger: Ledger, now: float) -> Mapping[str, str]:
    """The evicted workers (uids) that the stored `status` lists as alive, each with the name of the foreign pod.

    `pods` are the job's existing pods, and `now` is in epoch seconds. A listed worker that has ended was not evicted:
    it is deleted for its failure, and counts as lost already.
    """
    alive = {pod.uid for pod in pods if pod.deleting_since is None}
    found: dict[str, str] = {}
    for uid, node in listed_workers(status).items():
        for preemptor in ledger.pods_reserved_for(node) if uid not in alive else ():
            reservation = reservation_of(preemptor)
            if reservation.since - BACKWARDS_SECONDS <= now < reservation.until + FOUND_SECONDS:
                found[uid] = f"{preemptor.metadata.namespace}/{preemptor.metadata.name}"
    return found
