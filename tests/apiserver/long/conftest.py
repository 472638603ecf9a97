"""Many nodes that run every pod at once, and need nothing of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from devcluster.cluster import Cluster

FAKE_NODES = 20
GPUS = 8


@pytest.fixture
def fake_nodes(cluster: Cluster, api: httpx.Client) -> Iterator[list[str]]:
    """Room for 160 pods of one GPU; it is gone afterwards, so that other tests find the nodes that they count on."""
    names = cluster.add_fake_nodes(FAKE_NODES, gpus=GPUS, prefix="many")
    yield names
    for name in names:
        api.delete(f"/api/v1/nodes/{name}")
