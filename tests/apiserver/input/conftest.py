"""Nodes and a canary for the tests of wrong input."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from devcluster.cluster import Cluster
from tests.apiserver.input.pool import Canary, fake_nodes
from tests.apiserver.jobs_api import Jobs


@pytest.fixture
def pool(cluster: Cluster, api: httpx.Client) -> Iterator[list[str]]:
    """Nodes on which pods run and go at once."""
    with fake_nodes(cluster, api, prefix="input") as nodes:
        yield nodes


@pytest.fixture
def canary(pool: list[str], jobs: Jobs) -> Canary:  # noqa: ARG001 - it only has to be there
    """A job that is served throughout; the test starts it."""
    return Canary(jobs)
