"""A namespace of `watchNamespaces` is deleted, or loses the operator's Role: the operator, and its successor, go on in
the other namespaces.

A Role is deleted with its namespace. Without it, the operator's requests there are answered 403.
"""

from __future__ import annotations

import pytest

from elastic_operator.watches import STALE_SECONDS
from tests.kit.requests import Refusal, Request
from tests.simulate import server as kinds
from tests.virtual.actions import HOME, cut, edit, heal, job, kill, leads, manifest, nodes, on, replica, settled
from tests.virtual.scenario import Action, Step, run_scenario
from tests.virtual.world import SETTINGS, ProcessWorld

GONE = "gone"
SERVED = SETTINGS.model_copy(update={"watch_namespaces": (GONE, HOME)})


def create_namespace(world: ProcessWorld) -> None:
    """An administrator creates it."""
    world.server.create(kinds.NAMESPACES, {"metadata": {"name": GONE}})


def delete_namespace(world: ProcessWorld) -> None:
    """An administrator deletes it."""
    world.server.remove(kinds.NAMESPACES, world.server.find(kinds.NAMESPACES, "", GONE) or {})


def without_role(index: int) -> Action:
    """That replica has no Role in the namespace."""

    def is_there(request: Request) -> bool:
        return f"/namespaces/{GONE}/" in request.path

    return on(index, lambda line: line.faults.refusals.append(Refusal(403, is_there)))


@pytest.mark.parametrize("seed", range(3))
def test_the_operator_goes_on_when_a_served_namespace_is_deleted(seed: int) -> None:
    run_scenario(
        (
            Step("an operator leads", (create_namespace, nodes(2, 4), replica(), job("first", big=2)), (leads(0),)),
            Step("its job runs", (), (settled("first", 2),), within_seconds=30.0),
            Step(
                "the namespace is deleted",
                (without_role(0), delete_namespace, cut()),
                (settled("first", 2),),
                hold_seconds=3 * STALE_SECONDS,
            ),
            Step("a job in another namespace", (job("second", big=2),), (settled("second", 2),), within_seconds=30.0),
            Step("the operator dies", (kill(0), replica(), without_role(1)), (leads(1),), within_seconds=60.0),
            Step("a job for the next one", (job("third", big=2),), (settled("third", 2),), within_seconds=30.0),
        ),
        seed,
        settings=SERVED,
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_namespace_without_a_role_stops_nothing_in_the_others(seed: int) -> None:
    """The job there keeps its pods meanwhile, and is served again once the Role is back."""

    def pods_there(world: ProcessWorld) -> list[str]:
        return [pod["metadata"]["name"] for pod in world.server.all(kinds.PODS) if pod["metadata"]["namespace"] == GONE]

    def create_job_there(world: ProcessWorld) -> None:
        body = manifest("there", big=2)
        body["metadata"]["namespace"] = GONE
        world.server.create(kinds.JOBS, body)

    def grow_job_there(world: ProcessWorld) -> None:
        body = world.server.find(kinds.JOBS, GONE, "there")
        assert body is not None
        world.server.edit(kinds.JOBS, body, {**body["spec"], "maxReplicas": 3})

    run_scenario(
        (
            Step("an operator leads", (create_namespace, nodes(2, 4), replica(), create_job_there), (leads(0),)),
            Step("its job runs", (), (lambda world: len(pods_there(world)) == 2,), within_seconds=30.0),
            Step(
                "the Role is deleted",
                (without_role(0), cut()),
                (lambda world: len(pods_there(world)) == 2,),
                hold_seconds=3 * STALE_SECONDS,
            ),
            Step("a job in another namespace", (job("second", big=6),), (settled("second", 6),), within_seconds=30.0),
            Step("the operator dies", (kill(0), replica(), without_role(1)), (leads(1),), within_seconds=180.0),
            Step(
                "the other job changes", (edit("second", maxReplicas=4),), (settled("second", 4),), within_seconds=30.0
            ),
            Step(
                "the Role is back",
                (heal(1), grow_job_there),
                (lambda world: len(pods_there(world)) == 3,),
                within_seconds=90.0,
            ),
        ),
        seed,
        settings=SERVED,
    )
