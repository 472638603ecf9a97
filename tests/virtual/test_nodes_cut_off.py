"""Nodes that are not Ready. A single node counts as lost; many at once do not, because the network may be at fault.

A node is not lost while the job's master reports that its pods train. If the pods of a Torchrun job train on without a
lost node, the operator leaves them alone.
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
from tests.virtual.actions import (
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
from tests.virtual.scenario import Action, Scenario, Step, run_scenario
from tests.virtual.world import ProcessWorld


def readiness(ready: bool, indices: slice) -> Action:
    """What these nodes, in the order of their names, say of themselves from now on."""

    def do(world: ProcessWorld) -> None:
        for node in sorted(world.server.all(kinds.NODES), key=name_of)[indices]:
            world.server.update(kinds.NODES, node, status={**node["status"], "conditions": [world.readiness(ready)]})
        world.wake_machines()

    return do


def some_pod_was_deleted(world: ProcessWorld) -> object:
    """An operator deleted a pod in this step."""
    return any(each.line.requests(since=world.step_began, where=deletes_a_pod) for each in world.replicas)


def no_pod_is_on(index: int) -> Callable[[ProcessWorld], bool]:
    """That node has no pod of a job."""

    def look(world: ProcessWorld) -> bool:
        name = sorted(map(name_of, world.server.all(kinds.NODES)))[index]
        return all(pod["spec"].get("nodeName") != name for pod in world.pods())

    return look


ALL, FIRST, BUT_FIRST = slice(None), slice(1), slice(1, None)
PATIENCE_SECONDS = 40
SIX: tuple[Step, ...] = (
    Step(
        "three jobs run on six nodes",
        (nodes(6, 4), replica(), *(job(name, small=2, big=2, gpus=4) for name in ("one", "two", "three"))),
        (settled("one", 2), settled("two", 2), settled("three", 2)),
        hold_seconds=70,
    ),
)
IS_KEPT = (condition("one", "NodesUnreachable", "ManyAtOnce"), event("one", "NodesUnreachable"))
CUT_OFF: Scenario = (
    *SIX,
    Step("all nodes are cut off", (readiness(False, ALL),), hold_seconds=PATIENCE_SECONDS - 2, never=(IS_KEPT[0],)),
    Step("it is told", expect=IS_KEPT, within_seconds=5, hold_seconds=20, never=(some_pod_was_deleted,)),
    Step("they are back", (readiness(True, ALL),), (condition("one", "NodesUnreachable", "Over"),), within_seconds=2),
    Step("all run as before", expect=(settled("one", 2),), hold_seconds=600, never=(some_pod_was_deleted,)),
)
ONE_OFF: Scenario = (
    *SIX,
    Step(
        "one node is off", (readiness(False, FIRST),), hold_seconds=PATIENCE_SECONDS - 2, never=(some_pod_was_deleted,)
    ),
    Step("its pod is given up", expect=(no_pod_is_on(0), some_pod_was_deleted), within_seconds=5),
)
DIED: Scenario = (
    *SIX,
    Step(
        "all nodes are cut off",
        (readiness(False, ALL),),
        IS_KEPT,
        within_seconds=60,
        hold_seconds=3600,
        never=(some_pod_was_deleted,),
    ),
    Step("most are back", (readiness(True, BUT_FIRST),), hold_seconds=298, never=(some_pod_was_deleted,)),
    Step("one does not come", expect=(no_pod_is_on(0), some_pod_was_deleted), within_seconds=5),
)
SCENARIOS: dict[str, Scenario] = {
    "while all are cut off nothing is given up": CUT_OFF,
    "one of six that is off is lost": ONE_OFF,
    "one that does not come back with the others is lost five minutes later": DIED,
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", SCENARIOS)
def test_node_outage_keeps_pods_until_most_nodes_are_ready(name: str, seed: int) -> None:
    run_scenario(SCENARIOS[name], seed)


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

    def answers(self, *training: str) -> Action:
        """That these train from now on."""

        def do(_: ProcessWorld) -> None:
            self.training = training

        return do


def of_the_worker(**fields: Any) -> Action:
    """The worker's node is like that from now on; it is not Ready."""

    def do(world: ProcessWorld) -> None:
        node = world.server.find(kinds.NODES, "", node_of(world.pod("one-worker-0")))
        status = {**node["status"], "conditions": [world.readiness(False)]}
        world.server.update(kinds.NODES, node, status=status, **fields)

    return do


OFF = {"taints": [{"key": convert.OUT_OF_SERVICE, "value": "off", "effect": "NoExecute"}]}
MASTER = Master()
ENDS: dict[str, tuple[Action, ...]] = {
    "the group goes on without it": (MASTER.answers("one-master-0"),),
    "the master answers no more": (MASTER.answers(),),
    "somebody says that the node is off": (of_the_worker(spec=OFF),),
}


@pytest.mark.parametrize("end", ENDS)
def test_not_ready_node_keeps_pods_while_the_master_reports_them(
    end: str,
) -> None:
    job_of_two = job("one", small=2, big=2, gpus=4, runtime={"mode": "Elastic"})
    still_training = condition("one", "NodesUnreachable", "StillTraining")
    MASTER.training = Master.training
    scenario: Scenario = (
        Step("a job runs", (nodes(3, 4), replica(), job_of_two), (settled("one", 2),), hold_seconds=70),
        Step(
            "the worker's node is cut off",
            (of_the_worker(),),
            (still_training,),
            within_seconds=60,
            never=(some_pod_was_deleted,),
        ),
        Step(
            "it trains on", expect=(still_training, settled("one", 2)), hold_seconds=120, never=(some_pod_was_deleted,)
        ),
        Step(
            "another leads",
            (kill(0), replica()),
            (leads(1),),
            within_seconds=30,
            hold_seconds=60,
            never=(some_pod_was_deleted,),
        ),
        Step(end, ENDS[end], (some_pod_was_deleted, settled("one", 2)), within_seconds=15),
    )
    run_scenario(scenario, 1, status=MASTER.status)


def test_late_node_event_asks_the_master_before_the_node_is_lost() -> None:
    MASTER.training = Master.training
    scenario: Scenario = (
        Step(
            "a job runs",
            (nodes(3, 4), replica(), job("one", small=2, big=2, gpus=4, runtime={"mode": "Elastic"})),
            (settled("one", 2),),
            hold_seconds=115,
        ),
        Step(
            "nothing is heard of nodes",
            (fault(0, silent=of("nodes")), of_the_worker()),
            hold_seconds=PATIENCE_SECONDS + 5,
        ),
        Step("its worker trains on", (heal(0), cut(0)), hold_seconds=60, never=(some_pod_was_deleted,)),
        Step(
            "the group goes on without it", (MASTER.answers("one-master-0"),), (some_pod_was_deleted,), within_seconds=5
        ),
    )
    run_scenario(scenario, 1, status=MASTER.status)


def train(*names: str, port: int = 40_000) -> Action:
    """torchrun has put these pods into a group, and their logs say so; those of all others are as they were."""
    return lambda world: world.api.logs.update(said_by(*names, port=port))


def is_off(name: str) -> Action:
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
LEFT_ALONE = (
    event("one", "NodeLost", "A group of 2 pods trains on without that node, and is kept."),
    settled("one", 3),
)


def three(spare: int = 1) -> Step:
    """They train, and there is another node for the pod of one that is lost."""
    of_three = job("one", small=2, big=3, gpus=4)
    return Step(
        "a job of three runs", (nodes(3 + spare, 4), replica(), of_three), (settled("one", 3),), hold_seconds=70
    )


@pytest.mark.parametrize("seed", range(2))
def test_torchrun_group_without_a_lost_node_keeps_training(seed: int) -> None:
    scenario: Scenario = (
        three(),
        Step("they say so", (train(*NAMES),), hold_seconds=10),
        Step("a node is off", (is_off(NAMES[2]),), hold_seconds=15, never=(some_pod_was_deleted,)),
        Step("the others go on", (TRAIN_ON,), hold_seconds=20, never=(some_pod_was_deleted,)),
        Step("they are left alone", expect=LEFT_ALONE, within_seconds=10, hold_seconds=300, never=(incarnation(2),)),
    )
    run_scenario(scenario, seed)


@pytest.mark.parametrize("said", [train(*NAMES), lambda _: None], ids=["the group before", "nothing"])
@pytest.mark.parametrize("seed", range(2))
def test_torchrun_pods_are_replaced_after_node_loss_seconds(said: Action, seed: int) -> None:
    """Nothing ends its connections: it stood still for 240 s, until the node came back."""
    scenario: Scenario = (
        three(),
        Step("they say so", (said,), hold_seconds=10),
        Step("a node is off", (is_off(NAMES[2]),), hold_seconds=PATIENCE_SECONDS - 2, never=(some_pod_was_deleted,)),
        Step("all are replaced", expect=REPLACED, within_seconds=10),
    )
    run_scenario(scenario, seed)


def test_a_torchrun_group_is_replaced_where_logs_cannot_be_read() -> None:
    scenario: Scenario = (
        three(),
        Step(
            "they say so",
            (train(*NAMES), refuse(403, where=lambda request: request.path.endswith("/log"))),
            hold_seconds=10,
        ),
        Step(
            "a node is off",
            (is_off(NAMES[2]), TRAIN_ON),
            hold_seconds=PATIENCE_SECONDS - 2,
            never=(some_pod_was_deleted,),
        ),
        Step("all are replaced", expect=REPLACED, within_seconds=10),
    )
    run_scenario(scenario, 1)


@pytest.mark.parametrize("goes_on", [True, False])
def test_new_leader_reads_logs_before_a_torchrun_node_is_lost(goes_on: bool) -> None:
    after = (Step("they go on", (TRAIN_ON,)),) if goes_on else ()
    end = (
        Step("they are left alone", expect=LEFT_ALONE, within_seconds=50, hold_seconds=300, never=(incarnation(2),))
        if goes_on
        else Step("all are replaced", expect=REPLACED, within_seconds=50)
    )
    scenario: Scenario = (
        three(),
        Step("they say so", (train(*NAMES),), hold_seconds=10),
        Step("a node is off", (is_off(NAMES[2]),), hold_seconds=PATIENCE_SECONDS - 2, never=(some_pod_was_deleted,)),
        *after,
        Step("another leads", (kill(0), replica()), (leads(1),), within_seconds=30, never=(some_pod_was_deleted,)),
        end,
    )
    run_scenario(scenario, 1)


def test_smaller_torchrun_group_is_left_alone_without_room() -> None:
    scenario: Scenario = (
        three(spare=0),
        Step(
            "a node is off",
            (is_off(NAMES[2]), TRAIN_ON),
            hold_seconds=PATIENCE_SECONDS - 2,
            never=(some_pod_was_deleted,),
        ),
        Step(
            "they are left alone",
            expect=(settled("one", 2),),
            within_seconds=10,
            hold_seconds=300,
            never=(incarnation(2),),
        ),
    )
    run_scenario(scenario, 1)
