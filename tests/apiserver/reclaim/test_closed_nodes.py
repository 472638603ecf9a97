"""A node that takes no new pods: who runs there stays there, since nobody could have the room."""

from __future__ import annotations

import pytest

from tests.apiserver.faults.lab import World
from tests.apiserver.policies_api import Policies, quota
from tests.apiserver.reclaim.lab import Losses, Notebooks, cordon
from tests.apiserver.reclaim.observed import Observed

pytestmark = pytest.mark.apiserver


def test_cordon_evicts_no_pod_and_victims_are_on_open_nodes(
    observed: Observed, policies: Policies, world: World, owner: Notebooks
) -> None:
    closed = next(pod["spec"]["nodeName"] for pod in world.pods("toy") if "master" in pod["metadata"]["name"])
    [still_open] = set(world.kubelets.nodes) - {closed}
    losses = Losses(world.api, world.jobs.namespace)
    cordon(world.api, closed)
    observed.see_passes(world)
    assert losses.names() == []
    owner.create(gpus=4)
    assert owner.wait_bound() == still_open
    world.wait_settled("toy", 4)
    assert [lost["spec"]["nodeName"] for lost in losses.pods()] == [still_open] * 4
    assert len(observed.deletes()) == 4
    steps = observed.steps()
    policies.change("owner", flavors=quota(5))
    policies.wait_row("owner", GUARANTEED=5)
    owner.create("next")
    owner.wait_unschedulable("next")
    observed.see_passes(world)
    assert "Insufficient nvidia.com/gpu" in owner.unschedulable("next")
    assert len(losses.pods()) == 4
    assert observed.steps() == steps
    cordon(world.api, closed, closed=False)
    assert owner.wait_bound("next") == closed
    world.wait_settled("toy", 3)
    assert len(losses.pods()) == 5
