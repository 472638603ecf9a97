"""The Secret by which the pods of an Elastic job know each other; a pod that cannot read it cannot take part."""

from __future__ import annotations

from typing import Any

from elastic_operator.build.names import Owner, owned_metadata, secret_name
from elastic_worker.contract import SECRET_KEY


def build_secret(job: Owner, *, token: str, old: bool = False) -> dict[str, Any]:
    """The Secret called `secret_name`. It never changes, because pods that are created later must know the earlier
    ones.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": owned_metadata(job, secret_name(job.name, job.uid, old=old)),
        "type": "Opaque",
        "immutable": True,
        "stringData": {SECRET_KEY: token},
    }
