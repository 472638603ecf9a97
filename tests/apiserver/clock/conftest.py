"""Nodes that jobs have for themselves, and an API server with a clock that can be set."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.apiserver.clock.waits import POOLS, Waits
from tests.apiserver.faults.lab import FakeKubelets, World
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import Operators


@pytest.fixture
def proxy(kubeconfig: Path) -> Iterator[Proxy]:
    """A proxy before the API server."""
    with Proxy.of(kubeconfig) as proxy:
        yield proxy


@pytest.fixture
def operators(proxy: Proxy, operators: Operators) -> Operators:  # noqa: ARG001 - to outlive them
    """Starts operators; they are stopped while the proxy still runs, so that they can hand the lease back."""
    return operators


@pytest.fixture
def waits(api: httpx.Client, jobs: Jobs) -> Iterator[Waits]:
    """Jobs that wait, on nodes of their own."""
    nodes = [f"node-{uuid.uuid4().hex[:6]}" for _ in POOLS * 2]
    names = list(nodes)
    with FakeKubelets(api, 1, nodes).running() as kubelets:
        yield Waits(World(jobs, kubelets))
        nodes[:] = names  # those that a test lost go as well
