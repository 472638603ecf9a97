"""Writes that the API server refuses: until an edit, the operator does not retry; a throttled write it repeats."""

from __future__ import annotations

import pytest

from tests.kit.requests import Request, anything, makes_a_pod
from tests.virtual.actions import condition, edit, heal, job, leads, nodes, refuse, replica, settled
from tests.virtual.scenario import Condition, Step, run_scenario
from tests.virtual.world import ProcessWorld

SEEDS = pytest.mark.parametrize("seed", range(3))
LEADS = Step("an operator leads", (nodes(1, 4), replica()), (leads(0),))


def makes(role: str) -> Condition:
    """For requests: it creates a pod of that role."""
    return lambda request: makes_a_pod(request) and f"-{role}-" in request.body["metadata"]["name"]


def tries(world: ProcessWorld, role: str) -> list[Request]:
    """All of them, whatever came of them."""
    return [entry.request for entry in world.replicas[0].line.requests(where=makes(role))]


def has_no_pods(world: ProcessWorld) -> bool:
    """The job has given all of them back."""
    return not world.pods("toy")


@SEEDS
def test_a_job_whose_workers_are_refused_for_good_makes_its_master_once(seed: int) -> None:
    refused = (condition("toy", "Ready", "InvalidSpec"), has_no_pods)
    world = run_scenario(
        (
            LEADS,
            Step(
                "workers are refused",
                (refuse(422, where=makes("worker")), job(small=3, big=3)),
                refused,
                hold_seconds=60.0,
            ),
        ),
        seed,
    )
    assert len(tries(world, "master")) == 1
    assert len(tries(world, "worker")) == 2


@SEEDS
def test_a_job_whose_growth_is_refused_for_good_goes_on_as_it_is_until_it_is_edited(seed: int) -> None:
    runs = (condition("toy", "Ready", "InvalidSpec"), lambda world: len(world.pods("toy")) == 1)
    world = run_scenario(
        (
            LEADS,
            Step(
                "workers are refused",
                (refuse(422, where=makes("worker")), job(small=1, big=3)),
                runs,
                hold_seconds=60.0,
            ),
        ),
        seed,
    )
    assert len(tries(world, "worker")) == 2


@SEEDS
def test_a_refused_job_that_is_edited_is_tried_again(seed: int) -> None:
    refused = (condition("toy", "Ready", "InvalidSpec"), has_no_pods)
    run_scenario(
        (
            LEADS,
            Step(
                "workers are refused",
                (refuse(422, where=makes("worker")), job(small=3, big=3)),
                refused,
                hold_seconds=10.0,
            ),
            Step("it is edited", (heal(), edit("toy", maxReplicas=4)), (settled("toy", 4),), within_seconds=30.0),
        ),
        seed,
    )


def writes_a_status(request: Request) -> bool:
    """For requests: it writes the status of a job."""
    return request.method in {"PATCH", "PUT"} and request.path.endswith("/status")


@SEEDS
def test_unknown_kind_delays_a_job_and_does_not_delete_it(seed: int) -> None:
    refused = (lambda world: bool(world.replicas[0].line.requests(where=writes_a_status)),)
    run_scenario(
        (
            LEADS,
            Step(
                "statuses get a 404 that names no job",
                (refuse(404, where=writes_a_status), job()),
                refused,
                hold_seconds=5.0,
            ),
            Step("the server knows jobs again", (heal(),), (settled("toy", 4),), within_seconds=60.0),
        ),
        seed,
    )


@SEEDS
@pytest.mark.parametrize("throttled", [makes("worker"), writes_a_status], ids=["creation", "status"])
def test_running_job_is_not_degraded_because_one_write_is_throttled(throttled: Condition, seed: int) -> None:
    """An overloaded API server would get two more writes for each of its answers."""
    world = run_scenario(
        (
            LEADS,
            Step("the job runs", (job(big=2),), (settled("toy", 2),)),
            Step(
                "it grows",
                (refuse(429, where=throttled, times=1, retry_after=1), edit("toy", maxReplicas=4)),
                (settled("toy", 4),),
                within_seconds=30.0,
            ),
        ),
        seed,
    )
    entries = world.replicas[0].line.requests(where=anything)
    assert [entry.status for entry in entries if not entry.request.of_lease].count(429) == 1
    statuses = [str(entry.request.body) for entry in entries if writes_a_status(entry.request)]
    assert not [body for body in statuses if "Degraded" in body or "TooManyRequests" in body]
