"""Who gets what was freed: the one it was freed for, whoever else waits for it."""

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


def test_a_pod_gets_what_was_freed_for_it_though_older_ones_of_a_third_team_wait_for_it(
    observed: Observed, world: World, owner: Notebooks, guest: Notebooks
) -> None:
    older = wait_longer(guest)
    losses = Losses(world.api, world.jobs.namespace)
    owner.create()
    node = owner.wait_bound()
    world.wait_settled("toy", 7)
    observed.see_passes(world)
    assert [guest.node(name) for name in older] == ["", "", ""]
    assert owner.reservation()["node"] == node
    assert len(losses.pods()) == 1
    owner.delete()
    assert sorted(eventually("a node", lambda: [node for name in older if (node := guest.node(name))])) == [node]


@pytest.mark.extended
def test_several_pods_that_never_preempt_get_what_was_freed_for_each_though_older_ones_wait(
    observed: Observed, world: World, owner: Notebooks, guest: Notebooks, priority_class: Callable[..., str]
) -> None:
    older = wait_longer(guest)
    losses = Losses(world.api, world.jobs.namespace)
    names, calm = [f"notebook-{i}" for i in range(3)], priority_class(0, preemptionPolicy="Never")
    for name in names:
        owner.create(name, priorityClassName=calm)
    nodes = [owner.wait_bound(name) for name in names]
    world.wait_settled("toy", 5)
    observed.see_passes(world)
    assert [guest.node(name) for name in older] == ["", "", ""]
    assert sorted(pod["spec"]["nodeName"] for pod in losses.pods()) == sorted(nodes)


@pytest.mark.extended
def test_pods_of_a_team_without_a_right_to_gpus_cost_nobody_any(
    observed: Observed, world: World, owner: Notebooks, guest: Notebooks
) -> None:
    losses = Losses(world.api, world.jobs.namespace)
    guest.create()
    guest.wait_unschedulable()
    observed.see_passes(world)
    assert losses.names() == []
    assert not guest.nominated()
    owner.create()
    owner.wait_bound()
    assert len(losses.pods()) == 1


@pytest.mark.extended
def test_a_pod_whose_victims_go_one_after_the_other_costs_just_these(
    observed: Observed, world: World, owner: Notebooks
) -> None:
    losses = Losses(world.api, world.jobs.namespace)
    owner.create(gpus=4)
    node = owner.wait_bound()
    world.wait_settled("toy", 4)
    observed.see_passes(world)
    lost = losses.pods()
    assert [pod["spec"]["nodeName"] for pod in lost] == [node] * 4
    assert len(observed.deletes()) == 4


@pytest.mark.extended
def test_what_becomes_free_bit_by_bit_stays_with_a_pod_that_never_preempts_though_older_small_ones_wait(
    observed: Observed, world: World, owner: Notebooks, guest: Notebooks, priority_class: Callable[..., str]
) -> None:
    older = wait_longer(guest)
    losses = Losses(world.api, world.jobs.namespace)
    owner.create(gpus=4, priorityClassName=priority_class(0, preemptionPolicy="Never"))
    node = owner.wait_bound()
    world.wait_settled("toy", 4)
    observed.see_passes(world)
    assert [pod["spec"]["nodeName"] for pod in losses.pods()] == [node] * 4
    assert [guest.node(name) for name in older] == ["", "", ""]
