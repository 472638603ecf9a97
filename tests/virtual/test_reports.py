"""A master may report anything at any rate. The operator limits the work that this causes."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from elastic_operator.plan.job.master_report import FIRST_REPORT_SECONDS
from elastic_operator.pods.launcher_target import Target
from elastic_operator.pods.master_poller import NEWS_OF_A_JOB, NEWS_OF_A_JOB_SECONDS, POLL_SECONDS
from elastic_worker import contract
from tests.kit.requests import writes_job_status
from tests.simulate.violation import require
from tests.virtual.actions import condition, edit, end, job, kill, leads, nodes, replica, settled, successful_requests
from tests.virtual.scenario import Scenario, Step, run_scenario
from tests.virtual.world import ProcessWorld, no_answer, run_world

SECONDS = 600
MEMBERS = ("one-master-0", "one-worker-0", "one-worker-1", "one-worker-2")


@dataclass
class Liar:
    """A master that each time tells of another generation, and of other pods that train; never of all of them."""

    asked: int = 0

    def status(self, target: Target) -> bytes:
        """Its /status."""
        self.asked += 1
        members = MEMBERS[: 1 + self.asked % 2]
        said = {
            "contract": contract.VERSION,
            "epoch": target.master_epoch,
            "generation": self.asked,
            "state": "Running",
        }
        return json.dumps({**said, "members": members, "worldSize": len(members)}).encode()


ELASTICITY = {"scaleUpDelaySeconds": 0, "gracePeriodSeconds": 1, "checkpointPath": "/checkpoints"}
ELASTIC = job("one", small=2, big=4, runtime={"mode": "Elastic"}, elasticity=ELASTICITY)
RUNS = Step("a job runs", (nodes(2, 4), replica(), ELASTIC), (settled("one", 4),), within_seconds=10)
LIES = Step("its master tells lies", hold_seconds=SECONDS)


def has_lost_a_pod(world: ProcessWorld) -> bool:
    """Whether its status says so."""
    return any(change["reason"] == "PodLost" for change in world.status("one")["history"])


def test_a_master_that_tells_of_another_group_each_second_makes_one_write_in_five_seconds() -> None:
    liar = Liar()
    world = run_scenario((RUNS, LIES), 1, status=liar.status)
    assert liar.asked >= 0.9 * SECONDS
    expected = NEWS_OF_A_JOB + SECONDS / NEWS_OF_A_JOB_SECONDS
    assert expected / 2 < len(successful_requests(world, writes_job_status)) <= expected + 10


def test_what_happens_to_its_job_is_told_at_once_all_the_same() -> None:
    scenario: Scenario = (
        RUNS,
        LIES,
        Step("it shrinks", (edit("one", maxReplicas=3),), (settled("one", 3),)),
        Step("a pod fails", (end(1, "one-worker-1"),), (has_lost_a_pod, settled("one", 3))),
        Step("it is suspended", (edit("one", suspend=True),), (condition("one", "Ready", "Suspended"),)),
    )
    run_scenario(scenario, 1, status=Liar().status)


@pytest.mark.parametrize("members", [(), MEMBERS[:2], MEMBERS], ids=["no group", "a part of the pods", "all pods"])
def test_a_new_leader_keeps_what_a_status_tells_of_the_group_until_the_master_has_been_asked_for_long(
    members: tuple[str, ...],
) -> None:
    answering = True

    def status(target: Target) -> bytes:
        if not answering:
            return no_answer(target)
        state = "Running" if members else "Waiting"
        said = {"contract": contract.VERSION, "epoch": target.master_epoch, "generation": 1, "state": state}
        more = {"members": members, "worldSize": len(members), "reason": "" if members else "waits for one-worker-2"}
        return json.dumps({**said, **more}).encode()

    async def play(world: ProcessWorld) -> None:
        nonlocal answering
        for action in (nodes(2, 4), replica(), ELASTIC):
            action(world)
        await world.until("a job runs", lambda: settled("one", 4)(world), seconds=10)
        await world.advance(2 * FIRST_REPORT_SECONDS)
        known, answering = _of_its_group(world), False
        kill(0)(world)
        replica()(world)
        await world.until("another leader", lambda: leads(1)(world), seconds=30)
        for _ in range(int(POLL_SECONDS) - 1):
            await world.advance(1)
            require(_of_its_group(world) == known, f"first {known}, then {_of_its_group(world)}")
        await world.until("it is out of reach", lambda: condition("one", "Ready", "Running")(world), seconds=60)
        require("lastResizeTime" in world.status("one"), f"{world.status('one')}")

    run_world(1, play, status=status)


def _of_its_group(world: ProcessWorld) -> dict[str, object]:
    """The part of the job's status that describes its group."""
    status = world.status("one")
    ready = [(one["reason"], one["message"]) for one in status["conditions"] if one["type"] in ("Ready", "Resizing")]
    ranks = [pod.get("rank") for pod in status["pods"]]
    return {"ready": ready, "ranks": ranks, **{key: status.get(key) for key in ("lastResizeTime", "worldSize")}}
