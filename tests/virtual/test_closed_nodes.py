"""A pod that is pinned to a node and has not started moves to another node if its node closes or fills (142)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulate import server as kinds
from tests.simulate.facts import name_of, node_of, place_of
from tests.simulate.server import Body
from tests.simulate.violation import require
from tests.virtual.actions import deletions, job, nodes, occupy, replica, settled
from tests.virtual.scenario import Action
from tests.virtual.world import ProcessWorld, run_world

ELASTIC = {"runtime": {"mode": "Elastic"}}
PRESSURE = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}
AT_ONCE = 2.0


def schedules(runs: bool) -> Action:
    """kube-scheduler runs, or does not."""

    def do(world: ProcessWorld) -> None:
        world.machines.schedules = runs
        world.wake_machines()

    return do


def cordoned(world: ProcessWorld, name: str) -> None:
    """As by `kubectl cordon`."""
    world.server.update(kinds.NODES, _node(world, name), spec={"unschedulable": True})


def under_pressure(world: ProcessWorld, name: str) -> None:
    """As the node controller taints it when its disk is full."""
    world.server.update(kinds.NODES, _node(world, name), spec={"taints": [PRESSURE]})


def not_ready(world: ProcessWorld, name: str) -> None:
    """Its kubelet is not heard of."""
    node = _node(world, name)
    world.server.update(kinds.NODES, node, status={**node["status"], "conditions": [world.readiness(False)]})


def gone(world: ProcessWorld, name: str) -> None:
    """Somebody deletes the node."""
    world.server.remove(kinds.NODES, _node(world, name))


def _node(world: ProcessWorld, name: str) -> Body:
    return next(node for node in world.server.all(kinds.NODES) if name_of(node) == name)


def places(world: ProcessWorld) -> set[str]:
    """The nodes that the job's pods are bound or pinned to."""
    return {place_of(pod) for pod in world.pods("toy")}


def nothing_is_counted(world: ProcessWorld) -> None:
    """No loss, no failure, and nothing waits to be tried again."""
    status = world.status("toy")
    counted = {name: status.get(name) for name in ("restarts", "failures", "totalFailures", "retry")}
    require(not any(counted.values()), f"{counted}")


@pytest.mark.parametrize("mode", [{}, ELASTIC], ids=["torchrun", "elastic"])
@pytest.mark.parametrize("close", [cordoned, under_pressure, not_ready, gone])
def test_pods_of_a_closed_node_are_recreated_elsewhere_at_once(
    close: Callable[[ProcessWorld, str], None], mode: dict[str, Any]
) -> None:
    async def scenario(world: ProcessWorld) -> None:
        for action in (nodes(2, 2), replica(), schedules(False), job(small=2, big=2, **mode)):
            action(world)
        await world.until("its pods are there", lambda: len(world.pods("toy")) == 2, seconds=5)
        [before] = places(world)
        close(world, before)
        there = lambda: len(world.pods("toy")) == 2 and before not in places(world)  # noqa: E731
        await world.until("they are elsewhere", there, seconds=AT_ONCE)
        schedules(True)(world)
        await world.until("it runs", lambda: world.settled("toy", 2), seconds=5)
        nothing_is_counted(world)

    run_world(0, scenario)


@pytest.mark.parametrize("mode", [{}, ELASTIC], ids=["torchrun", "elastic"])
def test_those_that_run_go_on_while_a_worker_that_has_not_started_moves(mode: dict[str, Any]) -> None:
    async def scenario(world: ProcessWorld) -> None:
        for action in (nodes(1, 2), replica(), job(small=1, big=4, **mode)):
            action(world)
        await world.until("it runs", lambda: world.settled("toy", 2), seconds=5)
        run = {pod["metadata"]["uid"] for pod in world.pods("toy")}
        for action in (schedules(False), nodes(2, 2)):
            action(world)
        await world.until("it grows", lambda: len(world.pods("toy")) == 4, seconds=5)
        [closing, *_] = sorted({place_of(pod) for pod in world.pods("toy") if not node_of(pod)})
        cordoned(world, closing)
        moved = lambda: len(world.pods("toy")) == 4 and closing not in places(world)  # noqa: E731
        await world.until("they are elsewhere", moved, seconds=AT_ONCE)
        schedules(True)(world)
        await world.until("it is whole", lambda: world.settled("toy", 4), seconds=5)
        require(run <= {pod["metadata"]["uid"] for pod in world.pods("toy")}, "those that ran were replaced")
        nothing_is_counted(world)

    run_world(0, scenario)


def test_pods_that_a_node_has_stay_there_when_it_closes() -> None:
    async def scenario(world: ProcessWorld) -> None:
        for action in (nodes(2, 2), replica(), job(small=2, big=2)):
            action(world)
        world.machines.waits["toy"] = {"reason": "ContainerCreating"}
        await world.until("both have a node", lambda: len(list(filter(node_of, world.pods("toy")))) == 2, seconds=5)
        await world.advance(0.5)  # news of nodes may be faster than news of pods
        [node] = places(world)
        cordoned(world, node)
        await world.advance(30)
        world.machines.waits.clear()
        world.wake_machines()
        await world.until("it runs", lambda: world.settled("toy", 2), seconds=5)
        require(not deletions(world), f"{deletions(world)}")

    run_world(0, scenario)


def test_where_there_is_no_other_room_they_wait_without_a_pod_and_come_when_there_is() -> None:
    async def scenario(world: ProcessWorld) -> None:
        for action in (nodes(1, 2), replica(), schedules(False), job(small=2, big=2)):
            action(world)
        await world.until("its pods are there", lambda: len(world.pods("toy")) == 2, seconds=5)
        cordoned(world, *places(world))
        await world.until("they are gone", lambda: not world.pods("toy"), seconds=AT_ONCE)
        for action in (schedules(True), nodes(1, 2)):
            action(world)
        await world.until("it runs", lambda: settled("toy", 2)(world), seconds=5)
        nothing_is_counted(world)

    run_world(0, scenario)


@pytest.mark.parametrize("mode", [{}, ELASTIC], ids=["torchrun", "elastic"])
@pytest.mark.parametrize(("more", "size"), [(0, 3), (1, 4)], ids=["full", "room elsewhere"])
def test_pod_whose_place_a_foreign_pod_took_is_recreated(more: int, size: int, mode: dict[str, Any]) -> None:
    """Both were planned for the last GPU of a node, and the scheduler bound the other one."""

    async def scenario(world: ProcessWorld) -> None:
        for action in (nodes(2, 2), replica(), schedules(False), job(small=1, big=4, **mode)):
            action(world)
        await world.until("its pods are there", lambda: len(world.pods("toy")) == 4, seconds=5)
        for action in (occupy(1), nodes(more, 2), schedules(True)):
            action(world)
        await world.until("the others run, and none waits", lambda: world.settled("toy", size), seconds=5)
        nothing_is_counted(world)

    run_world(0, scenario)


@pytest.mark.parametrize("mode", [{}, ELASTIC], ids=["torchrun", "elastic"])
def test_a_job_that_can_no_longer_start_gives_back_what_it_holds_at_once(mode: dict[str, Any]) -> None:
    """Its other pods would hold GPUs for a start that does not come."""

    async def scenario(world: ProcessWorld) -> None:
        for action in (nodes(2, 2), replica(), schedules(False), job(small=4, big=4, **mode)):
            action(world)
        await world.until("its pods are there", lambda: len(world.pods("toy")) == 4, seconds=5)
        for action in (occupy(1), schedules(True)):
            action(world)
        await world.until("all of them are gone", lambda: not world.pods("toy"), seconds=5)
        nodes(1, 2)(world)
        await world.until("it runs", lambda: world.settled("toy", 4), seconds=5)
        nothing_is_counted(world)

    run_world(0, scenario)
