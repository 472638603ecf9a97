"""Nodes that are not Ready any more: one is lost; of many that went at once none is, as they may only not be heard.

Nor is one of whose pods the job's master says that they train. What a lost node leaves of a Torchrun job is left alone
if it trains on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from elastic_operator.pods.launcher_target import Target
from elastic_operator.read import convert
from elastic_worker import contract
from tests.build.groups import said_by
from tests.simulate import server as kinds
from tests.simulate.facts import name_of, node_of
from tests.virtual.deeds import (
    condition,
    cut,
    deletes_a_pod,
    event,
    fault,
    heal,
    job,
    kill,
    leads,
    nodes,
    of,
    refuse,
    replica,
    settled,
)
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
    return any(each.line.requests(since=world.row_began, where=deletes_a_pod) for each in world.replicas)


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


@dataclass
class Master:
    """What the master of the job `one` answers: that these pods of it train; nothing, where there are none."""

    training: tuple[str, ...] = ("one-master-0", "one-worker-0")

    def status(self, target: Target) -> bytes:
        """Its /status."""
        if not self.training:
            raise ConnectionRefusedError
        said = {"contract": contract.VERSION, "epoch": target.master_epoch, "generation": 1, "state": "Running"}
        return json.dumps({**said, "members": self.training, "worldSize": len(self.training)}).encode()

    def answers(self, *training: str) -> Deed:
        """That these train from now on."""

        def do(_: ProcessWorld) -> None:
            self.training = training

        return do


def of_the_worker(**fields: Any) -> Deed:
    """The worker's node is like that from now on; it is not Ready."""

    def do(world: ProcessWorld) -> None:
        node = world.server.find(kinds.NODES, "", node_of(world.pod("one-worker-0")))
        status = {**node["status"], "conditions": [world.readiness(False)]}
        world.server.update(kinds.NODES, node, status=status, **fields)

    return do


OFF = {"taints": [{"key": convert.OUT_OF_SERVICE, "value": "off", "effect": "NoExecute"}]}
MASTER = Master()
ENDS: dict[str, tuple[Deed, ...]] = {
    "the group goes on without it": (MASTER.answers("one-master-0"),),
    "the master answers no more": (MASTER.answers(),),
    "somebody says that the node is off": (of_the_worker(spec=OFF),),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_node_that_only_the_api_server_cannot_hear_is_not_given_up_before_the_master_misses_its_pods(
    end: str,
) -> None:
    job_of_two = job("one", small=2, big=2, gpus=4, runtime={"mode": "Elastic"})
    told = condition("one", "NodesUnreachable", "StillTraining")
    MASTER.training = Master.training
    story: Story = (
        Row("a job runs", (nodes(3, 4), replica(), job_of_two), (settled("one", 2),), stays=70),
        Row("the worker's node is cut off", (of_the_worker(),), (told,), within=60, never=(some_pod_was_deleted,)),
        Row("it trains on", comes=(told, settled("one", 2)), stays=120, never=(some_pod_was_deleted,)),
        Row("another leads", (kill(0), replica()), (leads(1),), within=30, stays=60, never=(some_pod_was_deleted,)),
        Row(end, ENDS[end], (some_pod_was_deleted, settled("one", 2)), within=15),
    )
    tell(story, 1, status=MASTER.status)


def test_where_a_node_is_heard_of_late_the_master_is_asked_before_the_node_is_given_up() -> None:
    MASTER.training = Master.training
    story: Story = (
        Row(
            "a job runs",
            (nodes(3, 4), replica(), job("one", small=2, big=2, gpus=4, runtime={"mode": "Elastic"})),
            (settled("one", 2),),
            stays=115,
        ),
        Row("nothing is heard of nodes", (fault(0, silent=of("nodes")), of_the_worker()), stays=PATIENCE_SECONDS + 5),
        Row("its worker trains on", (heal(0), cut(0)), stays=60, never=(some_pod_was_deleted,)),
        Row("the group goes on without it", (MASTER.answers("one-master-0"),), (some_pod_was_deleted,), within=5),
    )
    tell(story, 1, status=MASTER.status)


def train(*names: str, port: int = 40_000) -> Deed:
    """torchrun has put these pods into a group, and their logs say so; those of all others are as they were."""
    return lambda world: world.api.logs.update(said_by(*names, port=port))


def is_off(name: str) -> Deed:
    """The pod's node, for good."""

    def do(world: ProcessWorld) -> None:
        node = world.server.find(kinds.NODES, "", node_of(world.pod(name)))
        world.server.update(kinds.NODES, node, status={**node["status"], "conditions": [world.readiness(False)]})

    return do


def incarnation(number: int) -> Callable[[ProcessWorld], bool]:
    """All pods of the job are of that one."""
    return lambda world: world.status("one").get("incarnation") == number


NAMES = ("one-master-0", "one-worker-0", "one-worker-1")
TRAIN_ON = train(*NAMES[:2], port=40_001)
REPLACED = (incarnation(2), settled("one", 3))
LEFT_ALONE = (event("one", "NodeLost", "A group of 2 pods trains on without it and is left alone."), settled("one", 3))


def three(spare: int = 1) -> Row:
    """They train, and there is another node for the pod of one that is lost."""
    of_three = job("one", small=2, big=3, gpus=4)
    return Row("a job of three runs", (nodes(3 + spare, 4), replica(), of_three), (settled("one", 3),), stays=70)


@pytest.mark.parametrize("seed", range(2))
def test_a_torchrun_group_that_goes_on_without_a_lost_node_is_left_alone(seed: int) -> None:
    story: Story = (
        three(),
        Row("they say so", (train(*NAMES),), stays=10),
        Row("a node is off", (is_off(NAMES[2]),), stays=15, never=(some_pod_was_deleted,)),
        Row("the others go on", (TRAIN_ON,), stays=20, never=(some_pod_was_deleted,)),
        Row("they are left alone", comes=LEFT_ALONE, within=10, stays=300, never=(incarnation(2),)),
    )
    tell(story, seed)


@pytest.mark.parametrize("said", [train(*NAMES), lambda _: None], ids=["the group before", "nothing"])
@pytest.mark.parametrize("seed", range(2))
def test_a_torchrun_group_that_waits_for_a_lost_node_stands_still_no_longer_than_until_that_is_given_up(
    said: Deed, seed: int
) -> None:
    """Nothing ends its connections: it stood still for 240 s, until the node came back."""
    story: Story = (
        three(),
        Row("they say so", (said,), stays=10),
        Row("a node is off", (is_off(NAMES[2]),), stays=PATIENCE_SECONDS - 2, never=(some_pod_was_deleted,)),
        Row("all are replaced", comes=REPLACED, within=10),
    )
    tell(story, seed)


def test_a_torchrun_group_is_replaced_where_logs_cannot_be_read() -> None:
    story: Story = (
        three(),
        Row("they say so", (train(*NAMES), refuse(403, where=lambda request: request.path.endswith("/log"))), stays=10),
        Row("a node is off", (is_off(NAMES[2]), TRAIN_ON), stays=PATIENCE_SECONDS - 2, never=(some_pod_was_deleted,)),
        Row("all are replaced", comes=REPLACED, within=10),
    )
    tell(story, 1)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_leader_that_comes_late_asks_before_it_gives_up_the_node_of_a_torchrun_job(goes_on: bool) -> None:
    after = (Row("they go on", (TRAIN_ON,)),) if goes_on else ()
    end = (
        Row("they are left alone", comes=LEFT_ALONE, within=50, stays=300, never=(incarnation(2),))
        if goes_on
        else Row("all are replaced", comes=REPLACED, within=50)
    )
    story: Story = (
        three(),
        Row("they say so", (train(*NAMES),), stays=10),
        Row("a node is off", (is_off(NAMES[2]),), stays=PATIENCE_SECONDS - 2, never=(some_pod_was_deleted,)),
        *after,
        Row("another leads", (kill(0), replica()), (leads(1),), within=30, never=(some_pod_was_deleted,)),
        end,
    )
    tell(story, 1)


def test_a_torchrun_group_that_goes_on_below_its_size_is_left_alone_where_there_is_no_room() -> None:
    story: Story = (
        three(spare=0),
        Row("a node is off", (is_off(NAMES[2]), TRAIN_ON), stays=PATIENCE_SECONDS - 2, never=(some_pod_was_deleted,)),
        Row("they are left alone", comes=(settled("one", 2),), within=10, stays=300, never=(incarnation(2),)),
    )
    tell(story, 1)
