"""Where kube-scheduler leaves a job's pods to a scheduler that is not there, the job says so, and what to see after."""

from __future__ import annotations

import pytest

from elastic_operator.plan.job.pending_reasons import UNSEEN_SECONDS
from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.input.pool import conditions_of
from tests.apiserver.operators import Operators, eventually

pytestmark = [pytest.mark.apiserver, pytest.mark.extended]


def test_pods_without_a_scheduler_are_reported_with_what_to_check(world: World, operators: Operators) -> None:
    operators.start()
    job = elastic_job(small=2, big=2)
    job["spec"]["template"]["spec"]["schedulerName"] = "nobody"
    world.start(job)
    told = (
        f"0 of 2 pods run. No scheduler has tried toy-master-0, toy-worker-0 within {UNSEEN_SECONDS:.0f} s."
        " Check that a scheduler called nobody (schedulerName) runs."
    )

    def condition() -> dict[str, str]:
        return conditions_of(world.jobs, "Ready")["toy"]

    eventually(told, lambda: told in condition().get("message", ""), seconds=80, report=world.report)
    assert condition()["reason"] == "Starting"
