"""Devices of dynamic resource allocation (DRA): a job that requests some hears that they are not counted."""

from __future__ import annotations

import pytest

from tests.simulate import server as kinds
from tests.virtual.actions import condition, edit, event, has_logged, job, nodes, of, refuse, replica, settled
from tests.virtual.scenario import Action, Scenario, Step, run_scenario
from tests.virtual.world import ProcessWorld

GPU = "nvidia.com/gpu"
TOLD = "DevicesNotCounted"


def serve(resource: str | None) -> Action:
    """A DeviceClass comes that serves that extended resource, or none."""

    def do(world: ProcessWorld) -> None:
        spec = {"extendedResourceName": resource} if resource else {}
        world.server.create(kinds.DEVICE_CLASSES, {"metadata": {"name": "gpus"}, "spec": spec})
        world.wake_machines()

    return do


def unserve(world: ProcessWorld) -> None:
    """The DeviceClass goes."""
    (found,) = world.server.all(kinds.DEVICE_CLASSES)
    world.server.remove(kinds.DEVICE_CLASSES, found)
    world.wake_machines()


def without_word(world: ProcessWorld) -> bool:
    """The job says nothing about what is counted."""
    return all(each["type"] != TOLD for each in world.status("toy")["conditions"])


BEGIN = Step("a job runs", (nodes(1, 2), replica(), job(big=2)), (settled("toy", 2), without_word))
SCENARIOS: dict[str, Scenario] = {
    "a class comes that serves the job's GPUs, and goes": (
        BEGIN,
        Step(
            "it is told at once, and the job runs on",
            (serve(GPU),),
            (
                condition("toy", TOLD, "DynamicResourceAllocation", "DeviceClass gpus"),
                event("toy", TOLD),
                has_logged(0, f"{GPU} is handed out by DRA (DeviceClass gpus)"),
            ),
            within_seconds=1,
        ),
        Step("the class goes", (unserve,), (condition("toy", TOLD, "Over"), settled("toy", 2)), within_seconds=1),
    ),
    "an operator that may not read classes": (
        Step(
            "a job gets its pods",
            (nodes(1, 2), replica(), refuse(403, where=of(kinds.DEVICE_CLASSES)), serve(GPU), job(big=1)),
            (settled("toy", 1),),
            hold_seconds=200,
        ),
        Step("it grows, and is told nothing", (edit("toy", maxReplicas=2),), (settled("toy", 2), without_word)),
    ),
    "a class that serves something else": (
        BEGIN,
        Step(
            "nothing is told", (serve("example.com/nic"),), (without_word,), hold_seconds=5, never=(event("toy", TOLD),)
        ),
    ),
    "a class that serves no extended resource": (
        BEGIN,
        Step("nothing is told", (serve(None),), (without_word,), hold_seconds=5, never=(event("toy", TOLD),)),
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_job_whose_gpus_are_handed_out_by_dra_says_that_they_are_not_counted(name: str) -> None:
    run_scenario(SCENARIOS[name], 1)
