"""What an administrator writes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from elastic_api.job import API_VERSION
from tests.cluster.lab import Object, Team


@contextlib.contextmanager
def guaranteed(gpus: Mapping[Team, int]) -> Iterator[None]:
    """Each team has a policy meanwhile: so many GPUs are its own, and it may borrow whatever is idle."""
    (lab,) = {team.lab for team in gpus}
    lab.kubectl("apply", "-f", "-", objects=[_policy(team.name, number) for team, number in gpus.items()])
    try:
        yield
    finally:
        lab.kubectl("delete", "gpuquotapolicies", *(team.name for team in gpus))


def _policy(namespace: str, number: int) -> Object:
    """The namespace's policy, of the same name."""
    spec = {"namespaces": [namespace], "flavors": [{"name": "default", "guaranteed": number}]}
    return {"apiVersion": API_VERSION, "kind": "GPUQuotaPolicy", "metadata": {"name": namespace}, "spec": spec}
