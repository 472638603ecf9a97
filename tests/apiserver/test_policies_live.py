"""Quota policies on a real API server: their columns, what is wrong with one, what they keep jobs from, and their end.

What else is told of them stands in `tests/plan/policies`.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.operators import Operators, eventually
from tests.apiserver.policies_api import Policies, quota

pytestmark = pytest.mark.apiserver


def full_size(world: World, job: str = "toy") -> dict[str, Any]:
    """The condition that says why the job is not bigger."""
    conditions = world.status(job).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == "FullSize"), {})


def wait_limit(world: World, reason: str) -> str:
    """Until the job says that this limits it; returns its sentence."""
    eventually(reason, lambda: full_size(world).get("reason") == reason, report=world.report)
    message: str = full_size(world)["message"]
    return message


def test_the_columns_show_who_borrows_and_who_lends(operators: Operators, policies: Policies, world: World) -> None:
    policies.create("a", namespaces=[world.jobs.namespace], flavors=quota(2))
    policies.create("b", namespaces=["nobody"], flavors=quota(6, limit=1))
    operators.start()
    world.start(elastic_job(big=4))
    world.wait_settled("toy", 4)
    amounts = {"GUARANTEED": 2, "USED": 4, "BORROWED": 2, "LENT": 0, "LIMIT": None, "PENDING": 0, "READY": "True"}
    policies.wait_row("a", **amounts)
    policies.wait_row("b", GUARANTEED=6, USED=0, BORROWED=0, LENT=2, LIMIT=7, PENDING=0, READY="True")
    eventually("a job that runs", lambda: policies.status("a")["jobs"] == {"running": 1, "queued": 0})
    assert policies.status("a")["observedGeneration"] == 1
    assert policies.status("a")["flavors"] == [
        {"name": "default", "guaranteed": 2, "used": 4, "borrowed": 2, "lent": 0, "pending": 0, "fairShare": 4}
    ]
    world.delete_job("toy")
    policies.wait_row("a", USED=0, BORROWED=0)
    policies.wait_row("b", LENT=0)


def test_a_missing_parent_is_told_with_field_value_and_remedy_until_it_is_there(
    operators: Operators, policies: Policies
) -> None:
    policies.create("a", parent="gone")
    operators.start()
    message = policies.wait_condition("a", "Ready", "False", "ParentMissing")
    assert message == (
        f"spec.parent: '{policies.name('gone')}': that policy does not exist; create it, or remove the field. Until"
        " then this policy is part of none."
    )
    assert policies.condition("a", "Conflict")["status"] == "True"
    wrong_since = policies.condition("a", "Ready")["lastTransitionTime"]
    time.sleep(1.1)  # times have whole seconds
    policies.create("gone")
    policies.wait_condition("a", "Ready", "True", "InForce")
    assert policies.condition("a", "Conflict")["status"] == "False"
    assert policies.condition("a", "Ready")["lastTransitionTime"] > wrong_since


def test_a_job_that_may_not_borrow_says_so_and_grows_when_it_may(
    operators: Operators, policies: Policies, world: World
) -> None:
    policies.create("a", namespaces=[world.jobs.namespace], flavors=quota(2, limit=0))
    operators.start()
    world.start(elastic_job(big=8))
    world.wait_settled("toy", 2)
    message = wait_limit(world, "BorrowingDisabled")
    assert (
        f"policy '{policies.name('a')}' may use only its guarantee of 2 GPUs and uses 2; borrowing is off." in message
    )
    assert "Raise borrowing.limit or the guarantee" in message
    policies.wait_row("a", USED=2, LIMIT=2, PENDING=6)
    policies.change("a", flavors=quota(2, limit=3))
    world.wait_settled("toy", 5)
    message = wait_limit(world, "BorrowingLimitReached")
    assert "may use 5 GPUs (2 guaranteed + 3 borrowed) and uses 5. Raise borrowing.limit there, or wait." in message
    assert "The job gets 5 of 8 pods. 1 more needs 1 nvidia.com/gpu" in message
    policies.wait_row("a", USED=5, BORROWED=3, LIMIT=5, PENDING=3)
    policies.change("a", flavors=quota(2))
    world.wait_settled("toy", 8)
    policies.wait_row("a", USED=8, BORROWED=6, LIMIT=None, PENDING=0)


def test_jobs_go_on_when_their_policies_are_deleted(operators: Operators, policies: Policies, world: World) -> None:
    policies.create("research", flavors=quota(4))
    policies.create("a", parent="research", namespaces=[world.jobs.namespace], flavors=quota(2, limit=2))
    operator = operators.start()
    world.start(elastic_job(small=4, big=8))
    world.wait_settled("toy", 4)
    before = {pod["metadata"]["uid"] for pod in world.pods()}
    policies.wait_row("a", USED=4)
    policies.delete("research")
    policies.wait_condition("a", "Ready", "False", "ParentMissing")
    policies.delete("a")
    world.wait_settled("toy", 8)
    assert before <= {pod["metadata"]["uid"] for pod in world.pods()}
    assert operator.lives
    assert "Traceback" not in operator.text()
    assert "status cannot be written" not in operator.text()
