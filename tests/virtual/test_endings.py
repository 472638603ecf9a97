"""The ends of jobs that cannot succeed, and the GPUs that they use until then."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from elastic_operator.pods.launcher_target import Target
from elastic_worker import contract
from tests.simulate.violation import require
from tests.virtual.actions import condition, delete_job, end, event, job, nodes, replica, settled
from tests.virtual.scenario import Action, Condition, Scenario, Step, run_scenario
from tests.virtual.test_claims import GPUS, HOME, OWNER, has_pods, owner_comes, team
from tests.virtual.world import ProcessWorld, run_world

LIMIT, RAN, AWAY = 600, 300, 3600


def is_over(world: ProcessWorld) -> object:
    """The job `toy` has ended."""
    return "completionTime" in world.status("toy")


HELD_BY_OTHERS: Scenario = (
    Step(
        "a job borrows",
        (
            nodes(1, GPUS),
            team(OWNER, GPUS),
            team(HOME, 0),
            replica(),
            job(small=2, big=GPUS, activeDeadlineSeconds=LIMIT),
        ),
        (settled("toy", GPUS),),
        hold_seconds=RAN,
    ),
    Step("the owner takes its GPUs", (owner_comes,), (settled("owner", GPUS), has_pods(0)), within_seconds=30),
    Step("that takes long", expect=(has_pods(0),), hold_seconds=AWAY, never=(is_over,)),
    Step("it goes on", (delete_job("owner"),), (settled("toy", GPUS),), within_seconds=30),
    Step("for the rest of its time", expect=(settled("toy", GPUS),), hold_seconds=LIMIT - RAN - 60, never=(is_over,)),
    Step("which ends", expect=(condition("toy", "Failed", "DeadlineExceeded"), has_pods(0)), within_seconds=70),
)


@pytest.mark.parametrize("seed", range(2))
def test_the_deadline_does_not_come_nearer_while_others_hold_the_gpus(seed: int) -> None:
    run_scenario(HELD_BY_OTHERS, seed)


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
def test_job_that_crashes_every_eleven_minutes_fails_after_max_restarts(seed: int) -> None:
    async def scenario(world: ProcessWorld) -> None:
        await begins(world, recovery={"maxRestarts": 4})
        for failure in range(1, 6):
            require(not is_over(world), f"it is over before failure {failure}")
            await crashes(world)
        message = "The job has failed 5 times in all, and recovery.maxRestarts is 4."
        require(condition("toy", "Failed", "RestartLimitReached", message)(world), f"{world.status('toy')}")

    run_world(seed, scenario)


@dataclass
class Trains:
    """What a master answers whose training is at that step."""

    step: int = 1000

    def status(self, target: Target) -> bytes:
        """Its /status."""
        said = {"contract": contract.VERSION, "epoch": target.master_epoch, "generation": 1, "state": "Running"}
        members = {"members": [MASTER, "toy-worker-0"], "worldSize": 2}
        return json.dumps({**said, **members, "training": {"step": self.step}}).encode()


@pytest.mark.parametrize("seed", range(2))
def test_ten_minutes_without_a_new_step_are_no_progress(seed: int) -> None:
    trains = Trains()

    async def scenario(world: ProcessWorld) -> None:
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

    run_world(seed, scenario, status=trains.status)


@pytest.mark.parametrize(("codes", "ended"), [([42], True), ([43], False)])
@pytest.mark.parametrize("seed", range(2))
def test_an_exit_code_that_is_final_ends_the_job_at_once(codes: list[int], ended: bool, seed: int) -> None:
    async def scenario(world: ProcessWorld) -> None:
        await begins(world, recovery={"finalExitCodes": codes})
        await crashes(world, 42)
        message = "toy-master-0 failed with exit code 42"
        require(condition("toy", "Failed", "FinalExitCode", message)(world) is ended, f"{world.status('toy')}")

    run_world(seed, scenario)


NO_IMAGE = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "registry.example/train:1"'}
MOUNTS = {"reason": "ContainerCreating", "message": ""}
TOLD = (
    "toy-master-0 has not started on node n1 in 300 s (7 more have not started):"
    f" container pytorch: {NO_IMAGE['reason']}: {NO_IMAGE['message']}"
)
TOLD_LATE = "in 3600 s (7 more have not started): container pytorch: ContainerCreating. Its events say more"


def kubelets_say(why: dict[str, str] | None) -> Action:
    """Of the pods of `toy`, which they cannot start; None: they can."""

    def do(world: ProcessWorld) -> None:
        world.machines.waits = {"toy": why} if why else {}
        world.wake_machines()

    return do


def holds_gpus(why: dict[str, str], seconds: float, message: str) -> tuple[Step, ...]:
    """A job of all GPUs cannot start, and another one waits for them."""
    both = (kubelets_say(why), job(small=GPUS, big=GPUS), job("other", small=GPUS, big=GPUS))
    return (
        Step("a job comes whose pods cannot start", (nodes(1, GPUS), replica(), *both), (has_pods(GPUS),)),
        Step("they get their time", expect=(has_pods(GPUS),), hold_seconds=seconds - 10),
        Step(
            "then they go, and another job runs",
            expect=(
                settled("other", GPUS),
                has_pods(0),
                condition("toy", "PodsNotStarted", why["reason"], message),
                condition("toy", "Ready", "Queued", message),
                event("toy", "ScaleUpBlocked", message),
            ),
            within_seconds=20,
        ),
    )


def tried_for(attempt: int) -> Condition:
    """The job has not started so many times."""
    return lambda world: world.status("toy").get("failedSize", {}).get("attempt", 0) == attempt


BACK_OFF: Scenario = (
    *holds_gpus(NO_IMAGE, 300, TOLD),
    Step("the other one goes", (delete_job("other"),), (has_pods(GPUS),), within_seconds=100),
    Step("in vain", expect=(has_pods(0), tried_for(2)), within_seconds=310),
    Step("it waits twice as long", expect=(has_pods(GPUS),), not_before_seconds=115, within_seconds=190),
    Step(
        "the image is there",
        (kubelets_say(None),),
        (settled("toy", GPUS), condition("toy", "PodsNotStarted", NO_IMAGE["reason"])),
        hold_seconds=500,
    ),
    Step("it is forgotten", expect=(condition("toy", "PodsNotStarted", "Over"),), within_seconds=300),
)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "scenario", [BACK_OFF, holds_gpus(MOUNTS, 3600, TOLD_LATE)], ids=["an image", "nobody knows what"]
)
def test_job_whose_pods_do_not_start_frees_gpus_and_retries(scenario: Scenario, seed: int) -> None:
    run_scenario(scenario, seed)


COPIES: Scenario = (
    Step(
        "a job comes whose init containers copy a data set",
        (nodes(1, GPUS), replica(), kubelets_say({"reason": "PodInitializing", "message": ""}), job(small=GPUS)),
        (has_pods(GPUS), tried_for(0)),
        hold_seconds=2 * 3600,
    ),
    Step("they have ended", (kubelets_say(None),), (settled("toy", GPUS),)),
)


@pytest.mark.parametrize("seed", range(2))
def test_init_containers_have_no_time_limit(seed: int) -> None:
    run_scenario(COPIES, seed)


GROWS: Scenario = (
    Step("a job runs", (nodes(1, 4), replica(), job(small=2, big=GPUS)), (settled("toy", 4),)),
    Step("it grows, and new pods do not start", (kubelets_say(NO_IMAGE), nodes(1, 4)), (has_pods(GPUS),)),
    Step("these go alone", expect=(settled("toy", 4),), not_before_seconds=290, within_seconds=310),
)


@pytest.mark.parametrize("seed", range(2))
def test_growth_that_does_not_start_is_taken_back_and_the_job_goes_on(seed: int) -> None:
    run_scenario(GROWS, seed)
