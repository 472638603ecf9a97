"""A node that takes no new pods: who runs there stays there, since nobody could have the room."""

from __future__ import annotations

import pytest

from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.reclaim.lab import Losses, Notebooks, cordon
from tests.apiserver.reclaim.observed import Observed, Start

pytestmark = pytest.mark.apiserver


def test_a_cordon_evicts_nobody_and_victims_are_taken_from_open_nodes_only(
    observed: Observed, world: World, owner: Notebooks
) -> None:
    closed, still_open = world.kubelets.nodes
    losses = Losses(world.api, world.jobs.namespace)
    cordon(world.api, closed)
    observed.see_passes(world)
    assert losses.names() == []
    owner.create()
    assert owner.wait_bound() == still_open
    world.wait_settled("toy", 7)
    [lost] = losses.pods()
    assert lost["spec"]["nodeName"] == still_open
    cordon(world.api, still_open)
    owner.create("next")
    owner.wait_unschedulable("next")
    observed.see_passes(world)
    assert len(losses.pods()) == 1


@pytest.mark.extended
def test_an_entitled_pod_that_waits_costs_nobody_on_a_closed_node_a_gpu_until_it_is_open_again(
    start: Start, world: World, owner: Notebooks, guest: Notebooks
) -> None:
    closed, full = world.kubelets.nodes
    guest.create("large", gpus=4, nodeName=full)
    observed = start()
    world.start(elastic_job(small=2, big=8))
    world.wait_settled("toy", 4)
    cordon(world.api, closed)
    losses = Losses(world.api, world.jobs.namespace)
    owner.create()
    owner.wait_unschedulable()
    observed.see_passes(world)
    assert "Insufficient nvidia.com/gpu" in owner.unschedulable()
    assert losses.names() == []
    assert observed.steps() == []
    cordon(world.api, closed, closed=False)
    assert owner.wait_bound() == closed
    world.wait_settled("toy", 3)
    assert len(losses.pods()) == 1
