"""A pool of nodes that is empty at first, and an operator that asks for nodes soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from devcluster.cluster import Cluster
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import Operator, Operators
from tests.apiserver.provisioning.lab import Pool

Start = Callable[..., Operator]


@pytest.fixture
def pool(cluster: Cluster, api: httpx.Client, jobs: Jobs) -> Iterator[Pool]:
    """Played by KWOK; its nodes go with the test."""
    own = Pool(cluster, api, jobs)
    yield own
    own.clear()


@pytest.fixture
def start(operators: Operators) -> Start:
    """Starts operators that ask after a second; the next one need not wait for the lease of the one before."""

    def run(*, timeout_seconds: int = 600) -> Operator:
        own = {"PROVISIONING": "PendingPods", "PROVISIONING_DELAY_SECONDS": "1"}
        own["PROVISIONING_TIMEOUT_SECONDS"] = str(timeout_seconds)
        environ = {f"ELASTIC_OPERATOR_{name}": value for name, value in own.items()}
        return operators.start(environ={**environ, "POD_UID": "one-pod"})

    return run
