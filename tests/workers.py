"""Resources of each pytest worker, shared by its tests: names, a control plane, a warm parent of operators."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devcluster.cluster import Cluster
from devcluster.progress import Progress
from tests.apiserver.warm_parent import WarmParent

FLAGS = ("--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",)
"""Flags of the API server: it restricts who may write owner references, as some clusters do."""
_CONTROL_PLANE, _PARENT = pytest.StashKey[Cluster](), pytest.StashKey[WarmParent]()


def own_name(name: str) -> str:
    """A cluster's name, which differs in each worker."""
    return name + os.environ.get("PYTEST_XDIST_WORKER", "")


def control_plane(config: pytest.Config) -> Cluster:
    """The worker's control plane, started for the first test that needs it, and stopped when the worker ends.

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
    """The worker's warm parent, from which operators are forked."""
    if _PARENT not in config.stash:
        config.stash[_PARENT] = WarmParent.begin()
        config.add_cleanup(config.stash[_PARENT].end)
    return config.stash[_PARENT]
