"""A control plane of the chart's own: a release must find a cluster where nobody else has put its definitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devcluster.cluster import Cluster
from tests.chart.release import Release
from tests.workers import own_name


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    """The chart, installed with its defaults in a namespace that enforces the restricted pod security standard."""
    with Cluster.up(name=own_name("charttest"), nodes=0) as cluster:
        release = Release(cluster.kubeconfig, cluster.kubectl)
        release.kubectl("create", "namespace", release.namespace)
        release.kubectl("label", "namespace", release.namespace, "pod-security.kubernetes.io/enforce=restricted")
        release.install()
        yield release
