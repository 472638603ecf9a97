"""A suspended job with a what-if request gets an answer, costs no other job a pod, and is deleted if it asked only once
(160). Waiting jobs hear their place in the queue (161).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from elastic_api.what_if import ANNOTATION_WHAT_IF, KEEP, ONCE, ONCE_SECONDS
from elastic_operator.loop.forecast import what_ifs
from elastic_operator.pods.launcher_target import Target
from elastic_worker import contract
from tests.kit.requests import makes_a_pod
from tests.simulate import server as kinds
from tests.virtual.actions import HOME, edit, end, job, manifest, nodes, replica, settled, successful_requests
from tests.virtual.scenario import Action, Condition, Step, run_scenario
from tests.virtual.world import ProcessWorld


def question(name: str = "asks", value: str = KEEP, *, namespace: str = HOME, **spec: Any) -> Action:
    """A suspended job that asks."""

    def do(world: ProcessWorld) -> None:
        body = manifest(name, **{"suspend": True, **spec})
        body["metadata"] |= {"annotations": {ANNOTATION_WHAT_IF: value}, "namespace": namespace}
        world.server.create(kinds.JOBS, body)

    return do


def team(name: str, guaranteed: int) -> Action:
    """A team of the namespace of that name."""
    spec = {"namespaces": [name], "flavors": [{"name": "a", "guaranteed": guaranteed}]}
    return lambda world: world.server.create(kinds.POLICIES, {"metadata": {"name": name}, "spec": spec})


def forecast(name: str = "asks", **expected: Any) -> Condition:
    """The job's answer has these fields."""

    def look(world: ProcessWorld) -> bool:
        known = world.status(name).get("forecast", {})
        return expected.items() <= known.items()

    return look


def place(name: str, position: int | None) -> Condition:
    """Where the job stands in line."""
    return lambda world: world.status(name).get("queue", {}).get("position") == position


def exists(name: str) -> Condition:
    """The job is there."""
    return lambda world: world.job(name) is not None


def has_pods(world: ProcessWorld) -> bool:
    """Whether the job that asks has a pod, or anybody else does."""
    return bool(world.pods("asks"))


def gone(name: str) -> Condition:
    """The job is not there."""
    return lambda world: world.job(name) is None


BUSY = Step(
    "a job runs", (nodes(2, 4), replica(), job("runs", small=6, big=6)), (settled("runs", 6),), within_seconds=10
)


def test_a_suspended_job_that_asks_is_told_what_it_would_get_and_never_has_a_pod() -> None:
    fits = forecast(fits=True, replicas=2, gpus=2, limit="HigherPriorityJobs")
    world = run_scenario(
        (BUSY, Step("it asks", (question(small=1, big=5),), (fits,), never=(has_pods,), hold_seconds=300)), 1
    )
    assert "queue" not in world.status("asks")
    assert len([one for one in successful_requests(world, makes_a_pod) if "asks" in str(one)]) == 0


def test_an_edited_job_gets_a_new_answer_and_the_promised_pods_once_it_is_resumed() -> None:
    run_scenario(
        (
            BUSY,
            Step(
                "it asks for more than there is", (question(small=3, big=5),), (forecast(fits=False), place("asks", 1))
            ),
            Step(
                "it asks for less",
                (edit("asks", minReplicas=1),),
                (forecast(fits=True, replicas=2), place("asks", None)),
            ),
            Step("it is resumed", (edit("asks", suspend=False),), (settled("asks", 2),), within_seconds=10),
        ),
        1,
    )


def test_gpus_that_running_jobs_would_have_to_give_up_for_it_are_counted() -> None:
    runs = Step(
        "a job runs", (nodes(2, 4), replica(), job("runs", small=4, big=8)), (settled("runs", 8),), within_seconds=10
    )
    would = forecast(fits=True, replicas=3, reclaimedGpus=3, borrowedGpus=3, borrows=[])
    run_scenario((runs, Step("it asks", (question(small=3, big=3),), (would,), hold_seconds=60)), 1)


def test_the_annotation_means_nothing_on_a_job_that_runs() -> None:
    ask = question(suspend=False, small=1, big=2)
    world = run_scenario(
        (Step("it runs", (nodes(1, 4), replica(), ask), (settled("asks", 2),), hold_seconds=60, within_seconds=10),), 1
    )
    assert "forecast" not in world.status("asks")


def test_the_answer_names_whose_idle_guarantee_would_be_borrowed_and_no_job() -> None:
    lends = forecast(fits=True, replicas=6, borrowedGpus=4, borrows=[{"policy": "red", "gpus": 4}])
    world = run_scenario(
        (
            Step("two teams", (nodes(2, 4), team(HOME, 2), team("red", 6), replica())),
            Step("one asks", (question(small=6, big=6),), (lends,)),
        ),
        1,
    )
    assert world.status("asks")["forecast"]["limit"] == "AtMaximum"


def test_a_job_that_was_made_to_ask_goes_after_ten_minutes_and_one_that_is_kept_stays() -> None:
    asks = (question("once", ONCE), question("kept", KEEP))
    run_scenario(
        (
            BUSY,
            Step("two ask", asks, (forecast("once"), forecast("kept")), within_seconds=10),
            Step(
                "time passes",
                (),
                (gone("once"), exists("kept")),
                not_before_seconds=ONCE_SECONDS - 30,
                within_seconds=ONCE_SECONDS + 30,
            ),
        ),
        1,
    )


def test_a_job_that_was_made_to_ask_and_is_resumed_stays() -> None:
    run_scenario(
        (
            BUSY,
            Step("it asks", (question(value=ONCE, small=1, big=2),), (forecast(fits=True),)),
            Step(
                "it is resumed",
                (edit("asks", suspend=False),),
                (settled("asks", 2),),
                within_seconds=10,
                hold_seconds=ONCE_SECONDS + 60,
            ),
            Step("it is suspended again", (edit("asks", suspend=True),), (exists("asks"),), hold_seconds=ONCE_SECONDS),
        ),
        1,
    )


def test_a_namespace_that_asks_a_lot_is_answered_at_its_rate_and_another_one_at_once() -> None:
    many = tuple(question(f"many-{'abcdefghijklmnopqrst'[i]}", namespace="crowd") for i in range(20))
    crowd = [f"many-{'abcdefghijklmnopqrst'[i]}" for i in range(20)]

    def answered(world: ProcessWorld) -> int:
        return sum("forecast" in world.status(name) for name in crowd)

    def at_the_rate(most: int) -> Condition:
        return lambda world: answered(world) <= most

    most = what_ifs.MAX_QUESTIONS_AT_ONCE + 1
    run_scenario(
        (
            BUSY,
            Step("twenty ask", many, (at_the_rate(most),), hold_seconds=what_ifs.QUESTION_REFILL_SECONDS - 1),
            Step("another one asks", (question(),), (forecast(),), within_seconds=5),
            Step(
                "all are answered",
                (),
                (lambda world: answered(world) == 20,),
                within_seconds=17 * what_ifs.QUESTION_REFILL_SECONDS + 30,
            ),
        ),
        1,
    )


def test_waiting_jobs_hear_where_they_stand_and_move_up() -> None:
    run_scenario(
        (
            BUSY,
            Step("a second one waits", (job("second", small=4, big=4),), (place("second", 1),), within_seconds=30),
            Step("a third one waits", (job("third", small=4, big=4),), (place("third", 2),), within_seconds=30),
            Step("the first one ends", (end(0, "runs-master-0"),), (settled("second", 4),), within_seconds=200),
            Step("both have started", (), (place("second", None), place("third", None)), within_seconds=60),
        ),
        1,
    )


def progress(left: int) -> Callable[[Target], bytes]:
    """A master that says how long the rest takes."""

    def status(target: Target) -> bytes:
        said: dict[str, Any] = {
            "contract": contract.VERSION,
            "epoch": target.master_epoch,
            "generation": 1,
            "state": "Running",
        }
        said |= {"members": ["runs-master-0"], "worldSize": 1, "training": {"estimatedRemainingSeconds": left}}
        return json.dumps(said).encode()

    return status


@pytest.mark.parametrize("left", [1200])
def test_where_the_end_of_a_running_job_is_known_waiting_jobs_hear_when_they_start(left: int) -> None:
    elastic = job("runs", small=1, big=1, gpus=4, runtime={"mode": "Elastic"})

    def estimated(world: ProcessWorld) -> bool:
        queue = world.status("waits").get("queue", {})
        return "estimatedStartTime" in queue and queue["confidence"] == 1.0

    run_scenario(
        (
            Step("a job runs", (nodes(1, 4), replica(), elastic), (settled("runs", 1),), within_seconds=10),
            Step("another waits", (job("waits", small=4, big=4),), (estimated,), within_seconds=120),
        ),
        1,
        status=progress(left),
    )
