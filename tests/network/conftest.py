"""A cluster of these tests' own, on which network policies are enforced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devcluster import projectimage
from devcluster.cluster import Cluster
from devcluster.progress import Progress
from tests.cluster.lab import Lab
from tests.network.operator import Operator

NAME = "nettest"
NODES = 2
GPUS = 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs a cluster."""
    for item in items:
        if "tests/network/" in item.nodeid:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes with two GPUs each, and the project's images; nothing is installed."""
    progress = Progress()
    targets = projectimage.TARGETS
    made = Cluster.up(NAME, nodes=NODES, gpus=GPUS, network_policies=True, targets=targets, progress=progress)
    yield made
    made.down(progress=Progress(quiet=True))


@pytest.fixture(scope="session")
def lab(cluster: Cluster) -> Iterator[Lab]:
    """The cluster in a user's words."""
    lab = Lab(cluster)
    yield lab
    lab.http.close()


@pytest.fixture(scope="session")
def operator(lab: Lab) -> Operator:
    """Not installed yet."""
    return Operator(lab)
