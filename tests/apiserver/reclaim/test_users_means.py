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

SMALL = {"name": "small", "image": "local/none:1"}


def test_neither_a_disruption_budget_nor_a_priority_class_keeps_borrowed_gpus(
    start: Start, world: World, owner: Notebooks, priority_class: Callable[..., str]
) -> None:
    high = priority_class(1000, preemptionPolicy="Never")
    observed = start()
    job = elastic_job(small=2, big=8)
    job["spec"]["template"]["spec"]["priorityClassName"] = high
    world.start(job)
    world.wait_settled("toy", 8)
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
    node = owner.wait_bound()
    world.wait_settled("toy", 7)
    [lost] = losses.names()
    assert observed.steps() == [("reserve", "notebook", node), ("delete", lost, "")]
    assert {pod["spec"]["priority"] for pod in world.pods("toy")} == {1000}


def test_while_a_finalizer_keeps_a_victim_no_other_pod_is_evicted_and_its_place_is_kept(
    observed: Observed, world: World, owner: Notebooks, guest: Notebooks
) -> None:
    guest.create("older")
    small = [f"small-{i}" for i in range(3)]
    for name in small:
        guest.create(name, nodeName=world.kubelets.nodes[0], containers=[SMALL])
    for pod in world.pods("toy"):
        hold(world.api, pod)
    losses = Losses(world.api, world.jobs.namespace)
    owner.create()
    node = eventually("a nomination", owner.nominated, report=observed.text)
    [victim] = eventually("a victim", losses.pods)
    for name in small:
        guest.delete(name)
        observed.see_passes(world, 3)
        # kube-scheduler forgets it with each try that fails, and it tries after the end of any pod.
        eventually("the nomination", lambda: owner.nominated() == node, report=observed.text)
    assert losses.names() == [victim["metadata"]["name"]]
    assert not owner.node()
    hold(world.api, victim, held=False)
    assert owner.wait_bound() == node == victim["spec"]["nodeName"]
    world.wait_settled("toy", 7)
    assert losses.names() == [victim["metadata"]["name"]]
    assert not guest.node("older")
