"""Nodes that are not Ready any more: one is lost; of many that went at once none is, as they may only not be heard."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulate import server as kinds
from tests.simulate.facts import name_of
from tests.virtual.deeds import condition, deletes_a_pod, event, job, nodes, replica, settled
from tests.virtual.story import Deed, Row, Story, tell
from tests.virtual.world import ProcessWorld


def readiness(ready: bool, indices: slice) -> Deed:
    """What these nodes, in the order of their names, say of themselves from now on."""

    def do(world: ProcessWorld) -> None:
        for node in sorted(world.server.all(kinds.NODES), key=name_of)[indices]:
            world.server.update(kinds.NODES, node, status={**node["status"], "conditions": [world.readiness(ready)]})
        world.stir()

    return do


def some_pod_was_deleted(world: ProcessWorld) -> object:
    """By an operator, since the row began."""
    return world.replicas[0].line.requests(since=world.row_began, where=deletes_a_pod)


def no_pod_is_on(index: int) -> Callable[[ProcessWorld], bool]:
    """That node has no pod of a job."""

    def look(world: ProcessWorld) -> bool:
        name = sorted(map(name_of, world.server.all(kinds.NODES)))[index]
        return all(pod["spec"].get("nodeName") != name for pod in world.pods())

    return look


ALL, FIRST, BUT_FIRST = slice(None), slice(1), slice(1, None)
PATIENCE_SECONDS = 40
SIX: tuple[Row, ...] = (
    Row(
        "three jobs run on six nodes",
        (nodes(6, 4), replica(), *(job(name, small=2, big=2, gpus=4) for name in ("one", "two", "three"))),
        (settled("one", 2), settled("two", 2), settled("three", 2)),
        stays=70,
    ),
)
IS_KEPT = (condition("one", "NodesUnreachable", "ManyAtOnce"), event("one", "NodesUnreachable"))
CUT_OFF: Story = (
    *SIX,
    Row("all nodes are cut off", (readiness(False, ALL),), stays=PATIENCE_SECONDS - 2, never=(IS_KEPT[0],)),
    Row("it is told", comes=IS_KEPT, within=5, stays=20, never=(some_pod_was_deleted,)),
    Row("they are back", (readiness(True, ALL),), (condition("one", "NodesUnreachable", "Over"),), within=2),
    Row("all run as before", comes=(settled("one", 2),), stays=600, never=(some_pod_was_deleted,)),
)
ONE_OFF: Story = (
    *SIX,
    Row("one node is off", (readiness(False, FIRST),), stays=PATIENCE_SECONDS - 2, never=(some_pod_was_deleted,)),
    Row("its pod is given up", comes=(no_pod_is_on(0), some_pod_was_deleted), within=5),
)
DIED: Story = (
    *SIX,
    Row(
        "all nodes are cut off", (readiness(False, ALL),), IS_KEPT, within=60, stays=3600, never=(some_pod_was_deleted,)
    ),
    Row("most are back", (readiness(True, BUT_FIRST),), stays=298, never=(some_pod_was_deleted,)),
    Row("one does not come", comes=(no_pod_is_on(0), some_pod_was_deleted), within=5),
)
STORIES: dict[str, Story] = {
    "while all are cut off nothing is given up": CUT_OFF,
    "one of six that is off is lost": ONE_OFF,
    "one that does not come back with the others is lost five minutes later": DIED,
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", STORIES)
def test_of_many_nodes_that_went_at_once_none_is_given_up_before_most_are_back(name: str, seed: int) -> None:
    tell(STORIES[name], seed)
