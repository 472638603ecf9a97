"""The cause of a loss matters: a deleted pod delays nothing, and a kubelet that refuses pods is avoided."""

from __future__ import annotations

import pytest

from tests.simulate import server as kinds
from tests.simulate.facts import name_of, node_of
from tests.simulate.server import Body
from tests.simulate.violation import require
from tests.virtual.actions import condition, creations, delete_pod, end, job, nodes, replica, settled
from tests.virtual.scenario import Action, Step, run_scenario
from tests.virtual.world import ProcessWorld, run_world

MOST_MADE = 5
"""Pods that may be made on a node that refuses each one, in two minutes."""


def refuses(name: str) -> Action:
    """The kubelet of that node refuses each pod."""
    return lambda world: world.machines.refusing.add(name)


def waits(world: ProcessWorld) -> object:
    """Something waits to be tried again."""
    return "retry" in world.status("toy")


def runs(world: ProcessWorld, pod: str) -> bool:
    """That pod runs."""
    return any(name_of(one) == pod and one["status"]["phase"] == "Running" for one in world.pods("toy"))


@pytest.mark.parametrize("seed", range(2))
def test_a_node_that_refuses_pods_is_avoided_and_the_job_is_whole_elsewhere(seed: int) -> None:
    async def scenario(world: ProcessWorld) -> None:
        tried: list[str] = []

        def note(plural: str, _old: Body | None, new: Body | None) -> None:
            if plural == kinds.PODS and new and new["status"].get("reason") == "UnexpectedAdmissionError":
                tried.append(new["metadata"]["uid"])

        for action in (nodes(3, 2), replica(), job(small=2, big=4)):
            action(world)
        await world.until("it runs", lambda: world.settled("toy", 4), seconds=5)
        await world.advance(3600)  # what is old must not count as quiet
        world.server.listeners.append(note)
        [bad] = {node_of(world.pod("toy-worker-2"))}
        refuses(bad)(world)
        delete_pod("toy-worker-2")(world)
        await world.until("it is whole elsewhere", lambda: world.settled("toy", 4), seconds=10)
        for node in {node["metadata"]["name"] for node in world.server.all(kinds.NODES)} - {bad}:
            refuses(node)(world)
        before = len(set(tried))
        delete_pod("toy-worker-1")(world)
        await world.advance(120)
        require(0 < len(set(tried)) - before <= 3 * MOST_MADE, f"{len(set(tried)) - before} pods were refused")
        is_avoided = condition("toy", "FullSize", "InsufficientNodes", "The job avoids node n")
        await world.until("it says what it avoids", lambda: is_avoided(world), seconds=60)
        world.machines.refusing.clear()
        await world.until("it is whole again", lambda: world.settled("toy", 4), seconds=180)

    run_world(seed, scenario)


@pytest.mark.parametrize("seed", range(2))
def test_pods_that_a_user_deletes_are_replaced_at_once_however_many(seed: int) -> None:
    scenario = [Step("a job runs", (nodes(1, 8), replica(), job(small=2, big=8)), (settled("toy", 8),))]
    for index in [*range(7), *range(7)]:
        scenario += [
            Step(f"{index} is deleted", (delete_pod(f"toy-worker-{index}"),), (), hold_seconds=11),
            Step("it is there again", expect=(settled("toy", 8),), within_seconds=0.5, never=(waits,)),
        ]
    world = run_scenario(scenario, seed)
    require(creations(world).total() == 8 + 14, f"{creations(world)}")


@pytest.mark.parametrize(("apart", "waited"), [(0, False), (25, True)], ids=["together", "one by one"])
@pytest.mark.parametrize("seed", range(2))
def test_losses_that_come_together_count_as_one(apart: int, waited: bool, seed: int) -> None:
    async def scenario(world: ProcessWorld) -> None:
        elastic = {"runtime": {"mode": "Elastic"}}
        for action in (nodes(1, 8), replica(), job(small=2, big=8, **elastic)):
            action(world)
        await world.until("it runs", lambda: world.settled("toy", 8), seconds=5)
        for index in range(5):
            name = f"toy-worker-{index}"
            await world.until("it runs", lambda name=name: runs(world, name), seconds=60)
            end(1, name)(world)
            await world.advance(1.5 + apart)
        require(bool(waits(world)) is waited, f"{world.status('toy')}")

    run_world(seed, scenario)
