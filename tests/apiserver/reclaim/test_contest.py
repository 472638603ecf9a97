"""A plain pod of a team that is entitled to GPUs gets what was freed for it: just that, whoever else waits for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.apiserver.faults.lab import World
from tests.apiserver.operators import eventually
from tests.apiserver.reclaim.lab import Losses, Notebooks
from tests.apiserver.reclaim.observed import Observed

pytestmark = pytest.mark.apiserver


def wait_longer(guest: Notebooks) -> list[str]:
    """Names of pods that have no right to a GPU, and have waited for one before all others."""
    older = [f"older-{i}" for i in range(3)]
    for name in older:
        guest.create(name)
    guest.wait_unschedulable(*older)
    return older


def test_a_pod_gets_what_was_freed_for_it_though_older_ones_without_a_right_wait_for_it(
    observed: Observed, world: World, owner: Notebooks, guest: Notebooks
) -> None:
    losses = Losses(world.api, world.jobs.namespace)
    older = wait_longer(guest)
    observed.see_passes(world)
    assert losses.names() == []
    assert [guest.nominated(name) for name in older] == ["", "", ""]
    owner.create()
    node = owner.wait_bound()
    world.wait_settled("toy", 7)
    observed.see_passes(world)
    assert [guest.node(name) for name in older] == ["", "", ""]
    assert owner.reservation()["node"] == node
    [lost] = losses.names()
    assert "worker" in lost
    eventually("events", lambda: "QuotaReclaimed" in owner.events("notebook"))
    assert node in owner.events("notebook")["QuotaReclaimed"]
    newest = world.status()["history"][0]
    assert (newest["reason"], newest["from"], newest["to"]) == ("QuotaReclaimed", 8, 7)
    assert f"{owner.namespace}/notebook" in newest["message"]
    owner.delete()
    assert sorted(eventually("a node", lambda: [node for name in older if (node := guest.node(name))])) == [node]


@pytest.mark.extended
@pytest.mark.parametrize(("count", "gpus"), [(3, 1), (1, 4)], ids=["several", "a-large-one"])
def test_pods_that_never_preempt_get_what_was_freed_for_each_though_older_ones_wait(
    observed: Observed,
    world: World,
    owner: Notebooks,
    guest: Notebooks,
    priority_class: Callable[..., str],
    count: int,
    gpus: int,
) -> None:
    older = wait_longer(guest)
    losses = Losses(world.api, world.jobs.namespace)
    names, calm = [f"notebook-{i}" for i in range(count)], priority_class(0, preemptionPolicy="Never")
    for name in names:
        owner.create(name, gpus=gpus, priorityClassName=calm)
    nodes = [owner.wait_bound(name) for name in names]
    world.wait_settled("toy", 8 - count * gpus)
    observed.see_passes(world)
    assert [guest.node(name) for name in older] == ["", "", ""]
    assert sorted(pod["spec"]["nodeName"] for pod in losses.pods()) == sorted(nodes * gpus)
