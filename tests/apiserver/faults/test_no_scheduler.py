"""Where no scheduler looks at a job's pods, the job says so, and what to see after."""

from __future__ import annotations

from functools import partial

import pytest

from devcluster.cluster import Cluster
from elastic_operator.plan.waiting import UNSEEN_SECONDS
from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.input.pool import conditions_of
from tests.apiserver.operators import Operators, eventually

pytestmark = [pytest.mark.apiserver, pytest.mark.extended]


def test_pods_that_no_scheduler_looks_at_are_named_with_what_to_see_after(
    world: World, operators: Operators, control_plane: Cluster
) -> None:
    scheduler = control_plane.part("scheduler")
    operators.start()
    asks_for_nobody = elastic_job("asks-for-nobody", small=2, big=2)
    asks_for_nobody["spec"]["template"]["spec"]["schedulerName"] = "nobody"

    def is_told(job: str, reason: str, message: str) -> bool:
        condition = conditions_of(world.jobs, "Ready")[job]
        return condition.get("reason") == reason and message in condition["message"]

    scheduler.kill()
    world.start(elastic_job("toy", small=2, big=2))
    world.start(asks_for_nobody)
    since = f"looked at by no scheduler in {UNSEEN_SECONDS:.0f} s."
    for job, who in (("toy", "kube-scheduler"), ("asks-for-nobody", "a scheduler called nobody (schedulerName)")):
        told = f"0 of 2 pods run. {job}-master-0, {job}-worker-0: {since} See whether {who} runs."
        eventually(told, partial(is_told, job, "Starting", told), seconds=80, report=world.report)
    scheduler.restart()
    world.wait_settled("toy", 2)
    eventually("toy to run", lambda: is_told("toy", "Running", "2 pods"), report=world.report)
    assert is_told("asks-for-nobody", "Starting", since)
