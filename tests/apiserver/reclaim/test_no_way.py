"""A pod that could not run even with the GPU costs nobody one, whatever kube-scheduler complains of first."""

from __future__ import annotations

import pytest

from tests.api.jobs import with_gpus
from tests.apiserver.faults.lab import World
from tests.apiserver.operators import eventually
from tests.apiserver.reclaim.lab import Losses, Notebooks
from tests.apiserver.reclaim.observed import Observed

pytestmark = pytest.mark.apiserver


GREEDY = {"name": "greedy", "image": "local/none:1", "resources": {"requests": {"cpu": "60"}}}


def test_a_pod_that_lacks_cpu_costs_nobody_a_gpu(observed: Observed, world: World, owner: Notebooks) -> None:
    for node in world.kubelets.nodes:
        owner.create(f"greedy-{node}", nodeName=node, containers=[GREEDY])
    needs = with_gpus(1, name="main", image="local/none:1")
    needs["resources"]["requests"] = {"cpu": "8"}
    losses = Losses(world.api, world.jobs.namespace)
    owner.create(containers=[needs])
    lacks = "Insufficient nvidia.com/gpu"
    eventually(lacks, lambda: lacks in owner.unschedulable(), report=owner.unschedulable)
    observed.see_passes(world, 10)
    assert losses.names() == []
    assert observed.steps() == []
    # One that lacks nothing else gets its GPU.
    owner.create("plain")
    node = owner.wait_bound("plain")
    world.wait_settled("toy", 7)
    assert len(losses.pods()) == 1
    observed.see_passes(world)
    assert [step for step in observed.steps() if step[0] != "delete"] == [("reserve", "plain", node)]
    assert not owner.node()
    assert "Insufficient cpu" in owner.unschedulable()
