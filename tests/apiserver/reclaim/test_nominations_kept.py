"""kube-scheduler forgets a nomination with each try that fails; what was freed is kept for the pod all the same."""

from __future__ import annotations

import pytest

from tests.apiserver.faults.lab import World
from tests.apiserver.operators import eventually
from tests.apiserver.reclaim.lab import Losses, Notebooks
from tests.apiserver.reclaim.observed import Observed

pytestmark = [pytest.mark.apiserver, pytest.mark.extended]

SMALL = {"name": "small", "image": "local/none:1"}


def test_an_end_of_any_other_pod_meanwhile_costs_nobody_a_second_worker(
    observed: Observed, world: World, owner: Notebooks, guest: Notebooks
) -> None:
    guest.create("older")
    names = [f"small-{i}" for i in range(3)]
    for name in names:
        guest.create(name, nodeName=world.kubelets.nodes[0], containers=[SMALL])
    losses = Losses(world.api, world.jobs.namespace)
    world.kubelets.lets_go = False
    owner.create()
    node = eventually("a nomination", owner.nominated, report=observed.text)
    for name in names:
        guest.delete(name)
        observed.see_passes(world, 3)
        eventually("the nomination", lambda: owner.nominated() == node, report=observed.text)
    assert len(losses.pods()) == 1
    world.kubelets.lets_go = True
    assert owner.wait_bound() == node
    world.wait_settled("toy", 7)
    assert len(losses.pods()) == 1
    assert not guest.node("older")
