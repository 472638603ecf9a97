"""Names by which a job's objects and its rendezvous are known.

They are deterministic, so that a create that is repeated is refused instead of making a second pod, and an operator
that starts anew recognises what its predecessor made.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from elastic_operator.api.job import API_VERSION, KIND, MAX_REPLICAS
from elastic_worker.contract import LABEL_JOB_NAME, LABEL_JOB_UID, ROLE_MASTER, ROLE_WORKER

_ROLE_AND_INDEX = re.compile(r"-(?:(master)-(0)|(worker)-(0|[1-9][0-9]{0,3}))")


class Owner(Protocol):
    """The job an object is made for: its namespace, name and uid."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


def pod_name(job_name: str, role: str, index: int) -> str:
    """`NAME-master-0` or `NAME-worker-K`; `role` is "master" or "worker"."""
    return f"{job_name}-{role}-{index}"


def parse_pod_name(job_name: str, name: str) -> tuple[str, int] | None:
    """Role and index of the pod of job `job_name` called `name`; None for every name that `pod_name` does not make."""
    match = _ROLE_AND_INDEX.fullmatch(name.removeprefix(job_name)) if name.startswith(job_name) else None
    if match is None:
        return None
    role, index = (ROLE_MASTER, 0) if match[1] else (ROLE_WORKER, int(match[4]))
    return (role, index) if index < MAX_REPLICAS else None


def service_name(job_name: str) -> str:
    """The Service in front of the master, and its EndpointSlice."""
    return f"{job_name}-master"


def secret_name(job_name: str, uid: str, *, old: bool = False) -> str:
    """The Secret by which the pods of an Elastic job know each other.

    The uid keeps a job from taking that of one of its name which was deleted just before, for it would go with that
    one. `old` is the name of older releases, which did without: pods that have their token from there need to be met.
    """
    return f"{job_name}-elastic" if old else f"{job_name}-elastic-{uid}"


def rendezvous_id(uid: str, incarnation: int) -> str:
    """What keeps agents of an old incarnation, or of another job at the same address, out of the rendezvous."""
    return f"{uid}-{incarnation}"


def owned_metadata(job: Owner, name: str) -> dict[str, Any]:
    """The metadata of an object that is made for the job: found by the job's labels, and gone with the job."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": {LABEL_JOB_NAME: job.name, LABEL_JOB_UID: job.uid},
        "ownerReferences": [owner_reference(job)],
    }


def owner_reference(job: Owner) -> dict[str, object]:
    """Makes the job the controller of an object; the object goes when the job goes.

    It does not hold up the job's own deletion (`blockOwnerDeletion`): where the API server enforces that, it asks for a
    right over the job that nothing else needs.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
    }
