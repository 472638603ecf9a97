"""The soak looks after its control plane as a kubelet does."""

from __future__ import annotations

import pytest

from demo.kube import Kube
from devcluster.cluster import Cluster
from tests.apiserver.operators import eventually
from tests.cluster.lab import Lab
from tests.soak.site import SCHEDULER, Site

pytestmark = [pytest.mark.apiserver, pytest.mark.extended]


def test_a_scheduler_that_has_ended_is_started_again_once(control_plane: Cluster) -> None:
    kube = Kube(control_plane.kubeconfig, control_plane.kubectl, control_plane.programs["helm"])
    site = Site(Lab(control_plane), kube)
    scheduler = control_plane.part(SCHEDULER)
    scheduler.kill()
    eventually("its end", lambda: not scheduler.runs())
    assert site.start_ended_scheduler()
    assert scheduler.runs()
    assert not site.start_ended_scheduler()
