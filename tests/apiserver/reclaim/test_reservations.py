"""A reservation that does not work out is taken back, and another node is tried."""

from __future__ import annotations

import pytest

from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.operators import eventually
from tests.apiserver.reclaim.lab import Losses, Notebooks, hold
from tests.apiserver.reclaim.observed import Start

pytestmark = [pytest.mark.apiserver, pytest.mark.extended]

RESERVATION_SECONDS = 12
"""Longer than kube-scheduler ever waits before it tries a pod again: the second one must not run out as well."""


def test_a_reservation_that_runs_out_is_taken_back_and_another_node_is_tried(
    start: Start, world: World, owner: Notebooks
) -> None:
    observed = start(RECLAIM__RESERVATION_SECONDS=RESERVATION_SECONDS)
    world.start(elastic_job(small=2, big=8))
    world.wait_settled("toy", 8)
    for pod in world.pods("toy"):
        hold(world.api, pod)
    losses = Losses(world.api, world.jobs.namespace)
    owner.create()
    first = eventually("a nomination", owner.nominated, report=observed.text)
    for pod in world.pods("toy"):
        if pod["spec"]["nodeName"] != first:
            hold(world.api, pod, held=False)
    second = owner.wait_bound()
    assert {first, second} == set(world.kubelets.nodes)
    stuck, went = losses.pods()
    assert (stuck["spec"]["nodeName"], went["spec"]["nodeName"]) == (first, second)
    steps = observed.steps()
    assert list(dict.fromkeys(node for kind, _, node in steps if kind == "reserve")) == [first, second]
    assert observed.deletes() == [pod["metadata"]["name"] for pod in (stuck, went)]
    assert steps.index(("reserve", "notebook", second)) < steps.index(("delete", observed.deletes()[1], ""))
    assert list(owner.reservation()["avoid"]) == [first]
    told = eventually("an event", lambda: owner.events("notebook").get("ReservationExpired"))
    assert first in told
    assert observed.operator.metric("elastic_pytorch_reservations_expired_total") == 1
    eventually("six pods", lambda: len(world.pods("toy")) == 6, report=world.report)
    hold(world.api, stuck, held=False)
    world.wait_settled("toy", 7)
    assert len(losses.pods()) == 2
