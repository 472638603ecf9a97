"""Builders of what an administrator writes."""

from __future__ import annotations

from elastic_operator.api.job import API_VERSION
from tests.cluster.lab import Object


def policy(namespace: str, *, guaranteed: int) -> Object:
    """The namespace's policy, of the same name: so many GPUs are its own, and it may borrow whatever is idle."""
    flavor = {"name": "default", "guaranteed": guaranteed}
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUQuotaPolicy",
        "metadata": {"name": namespace},
        "spec": {"namespaces": [namespace], "flavors": [flavor]},
    }
