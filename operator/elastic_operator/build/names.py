"""Names of a job's objects and of its rendezvous; those of its pods are in `elastic_api.pod_names`.

They are deterministic. So a repeated create is refused instead of making a second pod, and a restarted operator
recognises the objects of its predecessor (8).
"""

from __future__ import annotations

from typing import Any, Protocol

from elastic_api.job import API_VERSION, KIND
from elastic_worker.contract import LABEL_JOB_NAME, LABEL_JOB_UID


class Owner(Protocol):
    """The job that an object is made for: its namespace, name and uid."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


def service_name(job_name: str) -> str:
    """The Service in front of the master, and its EndpointSlice."""
    return f"{job_name}-master"


def secret_name(job_name: str, uid: str, *, old: bool = False) -> str:
    """The Secret by which the pods of an Elastic job know each other (97).

    The uid keeps a job from using the Secret of an earlier job of that name, which is about to be garbage-collected.
    `old`: the name in older releases, without the uid, for pods that must meet those with a token from such a Secret.
    """
    return f"{job_name}-elastic" if old else f"{job_name}-elastic-{uid}"


def rendezvous_id(uid: str, incarnation: int) -> str:
    """The id that keeps agents of an old incarnation, or of another job at the same address, out of the rendezvous."""
    return f"{uid}-{incarnation}"


def owned_metadata(job: Owner, name: str) -> dict[str, Any]:
    """The metadata of an object that is made for the job: it has the job's labels, and is deleted with the job."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": {LABEL_JOB_NAME: job.name, LABEL_JOB_UID: job.uid},
        "ownerReferences": [owner_reference(job)],
    }


def owner_reference(job: Owner) -> dict[str, object]:
    """The reference that makes the job the controller of an object, which is garbage-collected with the job.

    It does not hold up the job's own deletion (`blockOwnerDeletion`). Where the API server enforces that, it takes a
    right over the job that nothing else needs (77).
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
    }
