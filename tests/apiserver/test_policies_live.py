"""Quota policies on a real API server: what they keep jobs from, what their statuses say, and what users are told."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.api.policies import make_flavor
from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.jobs_api import Jobs
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


# --- numbers


def test_the_columns_show_who_borrows_and_who_lends(operators: Operators, policies: Policies, world: World) -> None:
    policies.create("a", namespaces=[world.jobs.namespace], flavors=quota(2))
    policies.create("b", namespaces=["nobody"], flavors=quota(3, limit=1))
    operators.start()
    world.start(elastic_job(big=4))
    world.wait_settled("toy", 4)
    amounts = {"GUARANTEED": 2, "USED": 4, "BORROWED": 2, "LENT": 0, "LIMIT": None, "PENDING": 0, "READY": "True"}
    policies.wait_row("a", **amounts)
    policies.wait_row("b", GUARANTEED=3, USED=0, BORROWED=0, LENT=2, LIMIT=4, PENDING=0, READY="True")
    eventually("a job that runs", lambda: policies.status("a")["jobs"] == {"running": 1, "queued": 0})
    assert policies.status("a")["observedGeneration"] == 1
    assert policies.status("a")["flavors"] == [
        {"name": "default", "guaranteed": 2, "used": 4, "borrowed": 2, "lent": 0, "pending": 0, "fairShare": 4}
    ]
    world.delete_job("toy")
    policies.wait_row("a", USED=0, BORROWED=0)
    policies.wait_row("b", LENT=0)


def test_a_parent_shows_what_its_children_use(operators: Operators, policies: Policies, world: World) -> None:
    policies.create("research", flavors=quota(4))
    policies.create("a", parent="research", namespaces=[world.jobs.namespace], flavors=quota(1))
    operators.start()
    world.start(elastic_job(big=3))
    policies.wait_row("research", GUARANTEED=4, USED=3, BORROWED=0, READY="True")
    policies.wait_row("a", GUARANTEED=1, USED=3, BORROWED=2, READY="True")


def test_guarantees_beyond_all_gpus_and_foreign_pods_beyond_a_limit_are_told(
    operators: Operators, policies: Policies, world: World
) -> None:
    policies.create("a", namespaces=[world.jobs.namespace], flavors=quota(2, limit=0))
    policies.create("b", flavors=quota(7))
    world.occupy(3)
    operators.start()
    message = policies.wait_condition("b", "Overcommitted", "True", "GuaranteesExceedGPUs")
    assert "9 GPUs are guaranteed" in message
    assert "have 8" in message
    message = policies.wait_condition("a", "ForeignOverLimit", "True", "ForeignPods")
    assert "use 3 GPUs and may use 2; 3 are used by pods that are no job's" in message
    policies.change("b", flavors=quota(6))
    policies.wait_condition("b", "Overcommitted", "False", "Covered")
    world.delete_pod("foreign-0")
    policies.wait_condition("a", "ForeignOverLimit", "False", "WithinLimit")


# --- what cannot be as written


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


def test_of_two_policies_for_one_namespace_the_younger_is_in_conflict(
    operators: Operators, policies: Policies, jobs: Jobs
) -> None:
    policies.create("old", namespaces=[jobs.namespace])
    time.sleep(1.1)  # ages have whole seconds
    policies.create("young", namespaces=[jobs.namespace, "another"])
    operators.start()
    message = policies.wait_condition("young", "Conflict", "True", "Conflict")
    assert message.startswith(
        f"namespace {jobs.namespace}: belongs to the older policy '{policies.name('old')}', and to one policy only;"
        " remove it from spec.namespaces"
    )
    policies.wait_condition("old", "Conflict", "False", "NoConflict")
    policies.wait_condition("old", "Ready", "True", "InForce")
    policies.change("young", namespaces=["another"])
    policies.wait_condition("young", "Ready", "True", "InForce")
    eventually("the new generation", lambda: policies.status("young")["observedGeneration"] == 2)


def test_all_policies_of_a_circle_are_told(operators: Operators, policies: Policies) -> None:
    policies.create("a", parent="c")
    policies.create("b", parent="a")
    policies.create("c", parent="b")
    operators.start()
    for name in "abc":
        message = policies.wait_condition(name, "Ready", "False", "CircularParents")
        assert "must not lead back to this policy" in message
        assert "remove the parent of one of them" in message
    policies.change("b", parent=None)
    for name in "abc":
        policies.wait_condition(name, "Ready", "True", "InForce")


def test_a_flavor_that_the_settings_do_not_know_is_told_with_those_they_know(
    operators: Operators, policies: Policies
) -> None:
    policies.create("a", flavors=[make_flavor("h100", guaranteed=2)])
    operators.start()
    message = policies.wait_condition("a", "Ready", "False", "UnknownFlavor")
    assert message.startswith("spec.flavors: h100: must be among the flavors in the operator's settings (default);")
    policies.wait_row("a", GUARANTEED=0, READY="False")


# --- jobs under policies


def test_a_job_that_may_not_borrow_says_so_and_grows_when_it_may(
    operators: Operators, policies: Policies, world: World
) -> None:
    policies.create("a", namespaces=[world.jobs.namespace], flavors=quota(2, limit=0))
    operators.start()
    world.start(elastic_job(big=8))
    world.wait_settled("toy", 2)
    message = wait_limit(world, "BorrowingDisabled")
    assert f"policy '{policies.name('a')}' may use its 2 guaranteed GPUs and uses 2; borrowing is off." in message
    assert "Raise borrowing.limit or the guarantee" in message
    policies.wait_row("a", USED=2, LIMIT=2, PENDING=6)
    policies.change("a", flavors=quota(2, limit=3))
    world.wait_settled("toy", 5)
    message = wait_limit(world, "BorrowingLimitReached")
    assert "may use 5 (2 guaranteed + 3 borrowed) and uses 5. Raise borrowing.limit there, or wait." in message
    assert "5 of 8 pods. 1 more needs 1 nvidia.com/gpu" in message
    policies.wait_row("a", USED=5, BORROWED=3, LIMIT=5, PENDING=3)
    policies.change("a", flavors=quota(2))
    world.wait_settled("toy", 8)
    policies.wait_row("a", USED=8, BORROWED=6, LIMIT=None, PENDING=0)


def test_the_limit_holds_for_all_jobs_of_a_policys_namespaces_together(
    operators: Operators, policies: Policies, world: World, new_namespace: Callable[[], Jobs]
) -> None:
    other = World(new_namespace(), world.kubelets)
    policies.create("a", namespaces=[world.jobs.namespace, other.jobs.namespace], flavors=quota(2, limit=3))
    operators.start()
    world.start(elastic_job(small=3, big=3))
    world.wait_settled("toy", 3)
    other.start(elastic_job(small=1, big=8))
    other.wait_settled("toy", 2)
    wait_limit(other, "BorrowingLimitReached")
    policies.wait_row("a", USED=5, LIMIT=5, PENDING=6)
    eventually("2 jobs that run", lambda: policies.status("a")["jobs"] == {"running": 2, "queued": 0})


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
