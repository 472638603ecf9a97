"""Jobs that wait, on nodes that they have for themselves."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest

from tests.apiserver.clock.waits import POOLS, Waits
from tests.apiserver.faults.lab import FakeKubelets, World
from tests.apiserver.jobs_api import Jobs


@pytest.fixture
def waits(api: httpx.Client, jobs: Jobs) -> Iterator[Waits]:
    """Jobs that wait, on nodes of their own."""
    nodes = [f"node-{uuid.uuid4().hex[:6]}" for _ in POOLS * 2]
    names = list(nodes)
    with FakeKubelets(api, 1, nodes).running() as kubelets:
        yield Waits(World(jobs, kubelets))
        nodes[:] = names  # those that a test lost go as well
