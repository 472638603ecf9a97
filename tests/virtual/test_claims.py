"""Live pods of a deleted, ended or unreadable job are still preempted for a team that is entitled to their GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.requests import makes_a_pod
from tests.simulate import server as kinds
from tests.virtual.actions import (
    HOME,
    condition,
    edit,
    end,
    heal,
    job,
    kill,
    leads,
    manifest,
    nodes,
    refuse,
    replica,
    settled,
)
from tests.virtual.scenario import Action, Condition, Scenario, Step, run_scenario
from tests.virtual.world import ProcessWorld

OWNER = "red"
GPUS = 8


def team(name: str, guaranteed: int) -> Action:
    """A team of the namespace of that name, which may borrow without end."""
    spec = {"namespaces": [name], "flavors": [{"name": "a", "guaranteed": guaranteed}]}
    return lambda world: world.server.create(kinds.POLICIES, {"metadata": {"name": name}, "spec": spec})


def owner_comes(world: ProcessWorld) -> None:
    """A job of the team that is guaranteed everything asks for everything."""
    body = manifest("owner", small=GPUS, big=GPUS)
    body["metadata"]["namespace"] = OWNER
    world.server.create(kinds.JOBS, body)


def deleted_with_a_finalizer(name: str) -> Action:
    """Somebody deletes the job, whose object stays, and so do its pods."""

    def do(world: ProcessWorld) -> None:
        now = world.clock.text()
        world.server.relabel(kinds.JOBS, world.job(name) or {}, finalizers=["a.example/b"], deletionTimestamp=now)

    return do


def has_pods(count: int, name: str = "toy") -> Condition:
    """So many pods of the job stay."""
    return lambda world: len(world.pods(name)) == count


def holds(gpus: int) -> Condition:
    """So many pods of the team that owns nothing have not ended."""

    def look(world: ProcessWorld) -> bool:
        pods = [pod for pod in world.server.all(kinds.PODS) if pod["metadata"]["namespace"] == HOME]
        return sum(pod["status"]["phase"] in ("Pending", "Running") for pod in pods) == gpus

    return look


def borrows(gpus: int = GPUS, **spec: Any) -> Step:
    """A job of the team that is guaranteed nothing runs on so many GPUs."""
    actions = (nodes(1, GPUS), team(OWNER, GPUS), team(HOME, 0), replica(), job(**{"big": gpus, **spec}))
    return Step("a job borrows", actions, (settled("toy", gpus),))


def its_owner_gets_all(*before: Action) -> Step:
    """Within the grace of a pod and some passes."""
    comes = (settled("owner", GPUS), holds(0))
    return Step("the owner asks for its own", (*before, owner_comes), comes, within_seconds=30, hold_seconds=150)


ANOTHER_LEADER = Step("another one leads", (kill(0), replica()), (leads(1),), within_seconds=30)
INVALID = edit("toy", runtime={"mode": "Nonesuch"})
FUTURE = edit("toy", fromTheFuture={"a": 1}, maxReplicas=GPUS)
SCENARIOS: dict[str, Scenario] = {
    "its spec cannot be read any more": (
        borrows(),
        Step(
            "an edit",
            (INVALID,),
            (condition("toy", "Ready", "InvalidSpec", "runtime.mode"), has_pods(8)),
            hold_seconds=150,
        ),
        its_owner_gets_all(),
    ),
    "its spec cannot be read any more, and the one who could read it is gone": (
        borrows(),
        Step("an edit", (INVALID,), (condition("toy", "Ready", "InvalidSpec"),)),
        ANOTHER_LEADER,
        Step("it is left to run", expect=(has_pods(8),), hold_seconds=150),
        its_owner_gets_all(),
    ),
    "a field of a later release is in its spec": (
        borrows(4),
        Step("it grows all the same", (FUTURE,), (settled("toy", 8), condition("toy", "Ready", "Running"))),
        Step("it is said", expect=(condition("toy", "FieldsIgnored", "NoSuchField", "spec.fromTheFuture"),)),
        ANOTHER_LEADER,
        its_owner_gets_all(),
    ),
    "it is deleted and kept by a finalizer": (
        borrows(),
        Step("deleted", (deleted_with_a_finalizer("toy"),), (has_pods(8),), hold_seconds=150),
        its_owner_gets_all(),
    ),
    "it is deleted and kept by a finalizer, and its spec cannot be read": (
        borrows(),
        Step("an edit", (INVALID, deleted_with_a_finalizer("toy")), (has_pods(8),)),
        ANOTHER_LEADER,
        its_owner_gets_all(),
    ),
    "it has ended and its pods are to stay": (
        borrows(cleanPodPolicy="None"),
        Step(
            "its master ends",
            (end(0, "toy-master-0"),),
            (condition("toy", "Ready", "Succeeded"), holds(7)),
            hold_seconds=150,
        ),
        its_owner_gets_all(),
    ),
    "the API server refuses more of its pods": (
        borrows(4),
        Step(
            "it is to grow",
            (refuse(422, where=makes_a_pod), edit("toy", maxReplicas=GPUS)),
            (condition("toy", "Ready", "InvalidSpec"), has_pods(4)),
            within_seconds=30,
        ),
        its_owner_gets_all(heal()),
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_borrower_gives_back_what_it_borrowed_whatever_becomes_of_its_job(name: str) -> None:
    run_scenario(SCENARIOS[name], 1)


def test_an_unreadable_job_gives_up_no_more_pods_than_needed_and_creates_none() -> None:
    def one_of_the_owners(world: ProcessWorld) -> None:
        body = manifest("owner", small=3, big=3)
        body["metadata"]["namespace"] = OWNER
        world.server.create(kinds.JOBS, body)

    def deleted(world: ProcessWorld) -> None:
        world.server.remove(kinds.JOBS, world.job("owner") or {})

    scenario = (
        borrows(),
        Step("an edit", (INVALID,), (condition("toy", "Ready", "InvalidSpec"),)),
        Step(
            "some is asked for",
            (one_of_the_owners,),
            (settled("owner", 3), has_pods(5)),
            within_seconds=30,
            hold_seconds=150,
        ),
        Step("it is idle again", (deleted,), (has_pods(5),), hold_seconds=150),
        Step("the spec is mended", (edit("toy", runtime={"mode": "Torchrun"}),), (settled("toy", 8),)),
    )
    run_scenario(scenario, 1)


def test_a_job_that_cannot_be_read_ends_when_its_master_does() -> None:
    scenario = (
        borrows(2),
        Step("an edit", (INVALID,), (condition("toy", "Ready", "InvalidSpec"),)),
        ANOTHER_LEADER,
        Step("its master ends", (end(0, "toy-master-0"),), (condition("toy", "Succeeded", "Succeeded"),)),
        Step("its pods go", expect=(holds(0),), within_seconds=90),
    )
    run_scenario(scenario, 1)


def test_a_field_of_a_later_release_keeps_a_job_from_starting() -> None:
    scenario = (
        Step("a job comes", (nodes(1, 2), replica(), job(big=2, fromTheFuture=1)), ()),
        Step(
            "it waits",
            expect=(condition("toy", "Ready", "InvalidSpec", "spec.fromTheFuture"), has_pods(0)),
            hold_seconds=30,
        ),
        Step("it is mended", (_without("fromTheFuture"),), (settled("toy", 2),)),
    )
    run_scenario(scenario, 1)


def _without(field: str) -> Action:
    def do(world: ProcessWorld) -> None:
        body = world.job("toy") or {}
        world.server.edit(kinds.JOBS, body, {key: value for key, value in body["spec"].items() if key != field})

    return do
