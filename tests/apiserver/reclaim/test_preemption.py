"""kube-scheduler takes by itself what pods of higher priority need; nobody takes the same for them again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.apiserver.faults.lab import World
from tests.apiserver.operators import eventually
from tests.apiserver.reclaim.lab import Losses, Notebooks, preempted
from tests.apiserver.reclaim.observed import Observed

pytestmark = pytest.mark.apiserver


def test_what_kube_scheduler_takes_for_a_pod_of_higher_priority_is_one_loss_and_not_two(
    observed: Observed, world: World, owner: Notebooks, priority_class: Callable[..., str]
) -> None:
    losses = Losses(world.api, world.jobs.namespace)
    world.kubelets.lets_go = False
    owner.create(priorityClassName=priority_class(1000))
    node = eventually("a nomination", owner.nominated, report=observed.text)
    observed.see_passes(world)
    assert len(losses.pods()) == 1
    world.kubelets.lets_go = True
    assert owner.wait_bound() == node
    world.wait_settled("toy", 7)
    [lost] = losses.pods()
    assert preempted(lost)
    assert "worker" in lost["metadata"]["name"]
    assert observed.steps() == []
