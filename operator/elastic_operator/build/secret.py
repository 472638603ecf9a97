"""The Secret by which the pods of an Elastic job know each other; a pod that cannot read it cannot take part."""

from __future__ import annotations

from typing import Any

from elastic_operator.build.names import Owner, owner_reference, secret_name
from elastic_worker.contract import LABEL_JOB_NAME, LABEL_JOB_UID, SECRET_KEY


def build_secret(job: Owner, *, token: str, old: bool = False) -> dict[str, Any]:
    """The Secret called `secret_name`. It never changes: pods that are created later must know the others."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(job.name, job.uid, old=old),
            "namespace": job.namespace,
            "labels": {LABEL_JOB_NAME: job.name, LABEL_JOB_UID: job.uid},
            "ownerReferences": [owner_reference(job)],
        },
        "type": "Opaque",
        "immutable": True,
        "stringData": {SECRET_KEY: token},
    }
