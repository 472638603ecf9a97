"""A plain pod of a team that is entitled to GPUs gets them from a job that borrows: exactly those, and nobody else."""

from __future__ import annotations

import pytest

from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.operators import Operators, eventually
from tests.apiserver.policies_api import Policies, quota
from tests.apiserver.reclaim.lab import Losses, Notebooks

pytestmark = pytest.mark.apiserver


def test_one_worker_makes_way_for_one_gpu(operators: Operators, world: World, owner: Notebooks) -> None:
    operators.start()
    world.start(elastic_job(small=2, big=8))
    world.wait_settled("toy", 8)
    losses = Losses(world.api, world.jobs.namespace)
    owner.create()
    node = owner.wait_bound()
    assert owner.reservation()["node"] == node
    world.wait_settled("toy", 7)
    [lost] = losses.names()
    assert "worker" in lost
    eventually("events", lambda: "QuotaReclaimed" in owner.events("notebook"))
    assert node in owner.events("notebook")["QuotaReclaimed"]
    newest = world.status()["history"][0]
    assert (newest["reason"], newest["from"], newest["to"]) == ("QuotaReclaimed", 8, 7)
    assert f"{owner.namespace}/notebook" in newest["message"]
    owner.delete()
    world.wait_settled("toy", 8)


@pytest.mark.extended
def test_each_of_several_pods_costs_one_worker_and_none_goes_beyond_what_is_theirs(
    operators: Operators, policies: Policies, world: World, owner: Notebooks
) -> None:
    policies.change("owner", flavors=quota(4, limit=0))
    operators.start()
    world.start(elastic_job(small=2, big=8))
    world.wait_settled("toy", 8)
    losses = Losses(world.api, world.jobs.namespace)
    names = [f"notebook-{i}" for i in range(5)]
    for name in names:
        owner.create(name)
    eventually("four nodes", lambda: sum(bool(owner.node(name)) for name in names) == 4, report=world.report)
    world.wait_settled("toy", 4)
    assert len(losses.names()) == 4
    [waiting] = [name for name in names if not owner.node(name)]
    eventually("a message of the scheduler", lambda: owner.unschedulable(waiting))
