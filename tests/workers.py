"""What each pytest worker has for itself and for all of its tests: names, a control plane, a parent of operators."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devcluster.cluster import Cluster
from devcluster.progress import Progress
from tests.apiserver.warm_parent import WarmParent

FLAGS = ("--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",)
"""Of the API server: it enforces who may write owner references, as some clusters do."""
_CONTROL_PLANE, _PARENT = pytest.StashKey[Cluster](), pytest.StashKey[WarmParent]()


def own_name(name: str) -> str:
    """A cluster's name; another one in each worker."""
    return name + os.environ.get("PYTEST_XDIST_WORKER", "")


def control_plane(config: pytest.Config) -> Cluster:
    """The worker's, brought up for the first test that asks, and taken down when the worker ends.

    `ELASTIC_TEST_KUBECONFIG` names a running one to use in its place.
    """
    if given := os.environ.get("ELASTIC_TEST_KUBECONFIG"):
        return Cluster.attach(Path(given).parent.name)
    if _CONTROL_PLANE not in config.stash:
        own = Cluster.up(
            own_name("apitest"),
            nodes=0,
            kubernetes=config.getoption("--kubernetes"),
            api_server_flags=FLAGS,
            progress=Progress(quiet=True),
        )
        config.add_cleanup(own.down)
        config.stash[_CONTROL_PLANE] = own
    return config.stash[_CONTROL_PLANE]


def warm_parent(config: pytest.Config) -> WarmParent:
    """The worker's, where operators come from."""
    if _PARENT not in config.stash:
        config.stash[_PARENT] = WarmParent.begin()
        config.add_cleanup(config.stash[_PARENT].end)
    return config.stash[_PARENT]
