"""How jobs end that cannot succeed, and what they hold until then."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from elastic_operator.loop.progress import Target
from elastic_worker import contract
from tests.simulate.violation import require
from tests.virtual.deeds import condition, delete_job, end, job, nodes, replica, settled
from tests.virtual.story import Row, Story, tell
from tests.virtual.test_claims import GPUS, HOME, OWNER, has_pods, owner_comes, team
from tests.virtual.world import ProcessWorld, live

LIMIT, RAN, AWAY = 600, 300, 3600


def is_over(world: ProcessWorld) -> object:
    """The job `toy` has ended."""
    return "completionTime" in world.status("toy")


HELD_BY_OTHERS: Story = (
    Row(
        "a job borrows",
        (
            nodes(1, GPUS),
            team(OWNER, GPUS),
            team(HOME, 0),
            replica(),
            job(small=2, big=GPUS, activeDeadlineSeconds=LIMIT),
        ),
        (settled("toy", GPUS),),
        stays=RAN,
    ),
    Row("the owner takes its GPUs", (owner_comes,), (settled("owner", GPUS), has_pods(0)), within=30),
    Row("that takes long", comes=(has_pods(0),), stays=AWAY, never=(is_over,)),
    Row("it goes on", (delete_job("owner"),), (settled("toy", GPUS),), within=30),
    Row("for the rest of its time", comes=(settled("toy", GPUS),), stays=LIMIT - RAN - 60, never=(is_over,)),
    Row("which ends", comes=(condition("toy", "Failed", "DeadlineExceeded"), has_pods(0)), within=70),
)


@pytest.mark.parametrize("seed", range(2))
def test_the_deadline_does_not_come_nearer_while_others_hold_the_gpus(seed: int) -> None:
    tell(HELD_BY_OTHERS, seed)


ELEVEN_MINUTES = 660
MASTER = "toy-master-0"


async def crashes(world: ProcessWorld, exit_code: int = 1) -> None:
    """Its master ends so once the job has run for eleven minutes."""
    await world.until("it runs", lambda: world.settled("toy", 2), seconds=120)
    await world.advance(ELEVEN_MINUTES)
    if not is_over(world):
        end(exit_code, MASTER)(world)
        await world.advance(5)


async def begins(world: ProcessWorld, **spec: Any) -> None:
    """Such a job is applied."""
    nodes(2, 4)(world)
    world.start()
    job(small=2, big=2, **spec)(world)


@pytest.mark.parametrize("seed", range(2))
def test_a_job_that_crashes_every_eleven_minutes_ends_after_its_restarts(seed: int) -> None:
    async def story(world: ProcessWorld) -> None:
        await begins(world, recovery={"maxRestarts": 4})
        for failure in range(1, 6):
            require(not is_over(world), f"it is over before failure {failure}")
            await crashes(world)
        told = "failure 5 in all, and recovery.maxRestarts is 4"
        require(condition("toy", "Failed", "RestartLimitReached", told)(world), f"{world.status('toy')}")

    live(seed, story)


@dataclass
class Trains:
    """What a master answers whose training is at that step."""

    step: int = 1000

    def status(self, target: Target) -> bytes:
        """Its /status."""
        said = {"contract": contract.VERSION, "epoch": target.epoch, "generation": 1, "state": "Running"}
        members = {"members": [MASTER, "toy-worker-0"], "worldSize": 2}
        return json.dumps({**said, **members, "training": {"step": self.step}}).encode()


@pytest.mark.parametrize("seed", range(2))
def test_where_steps_are_known_ten_minutes_of_running_without_one_more_are_no_progress(seed: int) -> None:
    trains = Trains()

    async def story(world: ProcessWorld) -> None:
        await begins(world, runtime={"mode": "Elastic"})
        for _ in range(4):  # each time it goes further than before
            await crashes(world)
            trains.step += 500
        require(not is_over(world), f"{world.status('toy')}")
        trains.step -= 500
        for failure in range(2, 4):
            require(not is_over(world), f"it is over before failure {failure} at the same step")
            await crashes(world)
        require(condition("toy", "Failed", "RestartLimitReached")(world), f"{world.status('toy')}")

    live(seed, story, status=trains.status)


@pytest.mark.parametrize(("codes", "ended"), [([42], True), ([43], False)])
@pytest.mark.parametrize("seed", range(2))
def test_an_exit_code_that_is_final_ends_the_job_at_once(codes: list[int], ended: bool, seed: int) -> None:
    async def story(world: ProcessWorld) -> None:
        await begins(world, recovery={"finalExitCodes": codes})
        await crashes(world, 42)
        told = "toy-master-0 failed with exit code 42"
        require(condition("toy", "Failed", "FinalExitCode", told)(world) is ended, f"{world.status('toy')}")

    live(seed, story)
