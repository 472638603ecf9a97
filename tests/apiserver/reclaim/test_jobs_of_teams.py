"""An elastic job of the team that owns the GPUs takes them from a job that borrows them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import eventually
from tests.apiserver.policies_api import Policies, quota
from tests.apiserver.reclaim.lab import Losses, Notebooks
from tests.apiserver.reclaim.observed import Start

pytestmark = pytest.mark.apiserver


def test_a_job_takes_its_teams_gpus_from_a_borrower_and_both_are_told(
    start: Start, policies: Policies, world: World, new_namespace: Callable[[], Jobs]
) -> None:
    owner = World(new_namespace(), world.kubelets)
    policies.create("borrower", namespaces=[world.jobs.namespace], flavors=quota(2))
    policies.create("owner", namespaces=[owner.jobs.namespace], flavors=quota(4, limit=0))
    observed = start()
    world.start(elastic_job(small=2, big=8))
    world.wait_settled("toy", 8)
    losses = Losses(world.api, world.jobs.namespace)
    owner.start(elastic_job("mine", small=2, big=6))
    owner.wait_settled("mine", 4)
    world.wait_settled("toy", 4)
    observed.see_passes(world)
    assert sorted(losses.names()) == sorted(observed.deletes())
    assert len(losses.pods()) == 4
    assert all("worker" in name for name in losses.names())
    lost, got = Notebooks(world.api, world.jobs.namespace), Notebooks(world.api, owner.jobs.namespace)
    for pods, job, other in (
        (lost, "toy", f"{owner.jobs.namespace}/mine"),
        (got, "mine", f"{world.jobs.namespace}/toy"),
    ):
        told = eventually("an event", lambda pods=pods, job=job: pods.events(job).get("QuotaReclaimed"))
        assert other in told
    changes = [change for change in world.status()["history"] if change["reason"] == "QuotaReclaimed"]
    assert changes[0]["to"] == 4
    assert changes[-1]["from"] == 8
    assert owner.status("mine")["resizes"] <= 2
    owner.delete_job("mine")
    world.wait_settled("toy", 8)
