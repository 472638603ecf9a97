"""A master may report anything at any rate. The operator limits the work that this causes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from elastic_operator.pods.launcher_target import Target
from elastic_operator.pods.master_poller import NEWS_OF_A_JOB, NEWS_OF_A_JOB_SECONDS
from elastic_worker import contract
from tests.kit.requests import writes_job_status
from tests.virtual.actions import condition, edit, end, job, nodes, replica, settled, successful_requests
from tests.virtual.scenario import Scenario, Step, run_scenario
from tests.virtual.world import ProcessWorld

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
