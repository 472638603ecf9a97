"""The world that operators look at, and the control plane, to break parts of it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest

from devcluster.cluster import Cluster
from tests.apiserver.faults.lab import FakeKubelets, World, await_service_account
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import eventually

GPUS_PER_NODE = 25


@pytest.fixture
def world(api: httpx.Client, jobs: Jobs) -> Iterator[World]:
    """Two nodes with 25 GPUs each, and a namespace."""
    with FakeKubelets(api, GPUS_PER_NODE).running() as kubelets:
        yield World(jobs, kubelets)


@pytest.fixture
def control_plane(cluster: Cluster, api: httpx.Client) -> Iterator[Cluster]:
    """The control plane itself, to break parts of it; they run again afterwards."""
    yield cluster
    for part in ("etcd", "apiserver"):
        cluster.part(part).thaw()
    restart_clients(cluster, api)


def restart_clients(cluster: Cluster, api: httpx.Client) -> None:
    """The scheduler ends itself when it sees a history that has gaps; who runs a cluster starts it again."""
    eventually("the API server to be ready", lambda: is_ready(api), seconds=60)
    for part in ("scheduler", "controller-manager"):
        cluster.part(part).restart()
    # A new namespace has no service account, and so no pods, until the controller manager works.
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    api.post("/api/v1/namespaces", json={"metadata": {"name": namespace}}).raise_for_status()
    await_service_account(api, namespace)
    api.delete(f"/api/v1/namespaces/{namespace}").raise_for_status()


def is_ready(api: httpx.Client) -> bool:
    """Whether the API server says so."""
    try:
        return api.get("/readyz").is_success
    except httpx.HTTPError:
        return False
