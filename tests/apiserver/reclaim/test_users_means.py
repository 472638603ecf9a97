"""What users have put in the way: disruption budgets, priorities, finalizers."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from elastic_worker.contract import LABEL_JOB_NAME
from tests.apiserver.faults.lab import World, elastic_job, path_of
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import eventually
from tests.apiserver.reclaim.lab import Losses, Notebooks, hold
from tests.apiserver.reclaim.observed import Observed, Start

pytestmark = pytest.mark.apiserver


def test_a_disruption_budget_of_none_does_not_keep_borrowed_gpus(
    observed: Observed, world: World, owner: Notebooks
) -> None:
    budgets = f"/apis/policy/v1/namespaces/{world.jobs.namespace}/poddisruptionbudgets"
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {LABEL_JOB_NAME: "toy"}}}
    accepted(world.api.post(budgets, json={"metadata": {"name": "none"}, "spec": spec}))
    budget = f"{budgets}/none"
    eventually("the budget's status", lambda: world.api.get(budget).json().get("status", {}).get("observedGeneration"))
    worker = world.pods("toy")[-1]
    eviction = {"metadata": {"name": worker["metadata"]["name"]}}
    answer = world.api.post(f"{path_of(worker)}/eviction", json=eviction)
    assert answer.status_code == httpx.codes.TOO_MANY_REQUESTS, answer.text
    losses = Losses(world.api, world.jobs.namespace)
    owner.create()
    owner.wait_bound()
    world.wait_settled("toy", 7)
    assert len(losses.pods()) == 1
    assert len(observed.deletes()) == 1


@pytest.mark.extended
def test_a_priority_class_in_the_template_does_not_keep_borrowed_gpus(
    start: Start, world: World, owner: Notebooks, priority_class: Callable[..., str]
) -> None:
    observed = start()
    job = elastic_job(small=2, big=8)
    job["spec"]["template"]["spec"]["priorityClassName"] = priority_class(1000)
    world.start(job)
    world.wait_settled("toy", 8)
    losses = Losses(world.api, world.jobs.namespace)
    owner.create()
    node = owner.wait_bound()
    world.wait_settled("toy", 7)
    [lost] = losses.names()
    assert observed.steps() == [("reserve", "notebook", node), ("delete", lost, "")]
    assert {pod["spec"]["priority"] for pod in world.pods("toy")} == {1000}


def test_while_a_finalizer_holds_a_victim_back_nobody_else_goes_and_the_place_is_kept(
    observed: Observed, world: World, owner: Notebooks, guest: Notebooks
) -> None:
    guest.create("older")
    for pod in world.pods("toy"):
        hold(world.api, pod)
    losses = Losses(world.api, world.jobs.namespace)
    owner.create()
    node = eventually("a nomination", owner.nominated, report=observed.text)
    [victim] = eventually("a victim", losses.pods)
    observed.see_passes(world, 10)
    assert losses.names() == [victim["metadata"]["name"]]
    assert not owner.node()
    hold(world.api, victim, held=False)
    assert owner.wait_bound() == node == victim["spec"]["nodeName"]
    world.wait_settled("toy", 7)
    assert losses.names() == [victim["metadata"]["name"]]
    assert not guest.node("older")


@pytest.mark.extended
def test_a_pod_that_has_ended_holds_no_gpu_though_a_finalizer_holds_it(
    start: Start, world: World, owner: Notebooks
) -> None:
    world.occupy(2)
    observed = start()
    world.start(elastic_job(small=2, big=8))
    world.wait_settled("toy", 6)
    for name in ("foreign-0", "foreign-1"):
        hold(world.api, world.api.get(f"{world.pods_path}/{name}").json())
        world.end(name, 0)
    world.delete_pod("foreign-0")
    world.wait_settled("toy", 8)
    losses = Losses(world.api, world.jobs.namespace)
    owner.create()
    owner.wait_bound()
    world.wait_settled("toy", 7)
    assert len(losses.pods()) == len(observed.deletes()) == 1
