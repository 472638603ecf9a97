"""User actions: edits in any order, a job that is created again under its name, requests that no node can satisfy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.jobs import make_container, make_template
from tests.simulate.facts import GPU, POOL
from tests.virtual.actions import (
    condition,
    creations,
    delete_job,
    edit,
    has_status,
    job,
    let_go,
    nodes,
    replica,
    settled,
)
from tests.virtual.scenario import Scenario, Step, run_scenario
from tests.virtual.world import ProcessWorld

EDITS: dict[str, tuple[dict[str, int], int]] = {
    "raise max": ({"maxReplicas": 6}, 6),
    "raise min": ({"minReplicas": 4}, 6),
    "lower max": ({"maxReplicas": 4}, 4),
    "lower min": ({"minReplicas": 1}, 4),
    "shrink both": ({"minReplicas": 1, "maxReplicas": 2}, 2),
    "move both above the size": ({"minReplicas": 3, "maxReplicas": 5}, 5),
    "min = max": ({"minReplicas": 3, "maxReplicas": 3}, 3),
    "move both below the size": ({"minReplicas": 1, "maxReplicas": 2}, 2),
    "one pod": ({"minReplicas": 1, "maxReplicas": 1}, 1),
    "to 2:4": ({"minReplicas": 2, "maxReplicas": 4}, 4),
}
"""What is written over, and how large the job is in the end."""
UNHURT = has_status("toy", restarts=0, failures=0)


def of_size(size: int) -> tuple[Any, ...]:
    """The job has all the pods that it may have, and was hurt by nothing."""
    limit = condition("toy", "FullSize", "AtMaximum")
    return settled("toy", size), condition("toy", "Ready", "Running"), limit, has_status("toy", worldSize=size), UNHURT


def has_nodes(world: ProcessWorld) -> bool:
    """Both pods of the job have nodes."""
    return len(pods := world.pods("toy")) == 2 and all(pod["spec"].get("nodeName") for pod in pods)


def second_is_made(world: ProcessWorld) -> bool:
    """A pod of the second job of the name was made."""
    return any(count > 1 for count in creations(world).values())


def template(gpus: int = 1, selector: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    """The template of a pod that asks for so much."""
    container = make_container(resources={"limits": {GPU: gpus}, "requests": requests})
    return make_template(container, nodeSelector={POOL: "a", **(selector or {})})


TOO_MUCH = {
    "selector": (template(selector={"kind": "none"}), "NodeSelectorUnsatisfied", "Change the template's nodeSelector"),
    "cpu": (template(cpu="1000"), "InsufficientCPUOrMemory", "1000 cpu"),
    "memory": (template(memory="900Ti"), "InsufficientCPUOrMemory", "memory"),
    "gpus": (template(gpus=5), "InsufficientNodes", "the largest usable node has 4 nvidia.com/gpu"),
}
"""What no node has, and what is said of it."""

SCENARIOS: dict[str, Scenario] = {
    "min and max are edited in every order, each edit during the one before": (
        Step("a job runs", (nodes(2, 4), replica(), job(small=2, big=4)), of_size(4)),
        Step("all edits at once", [edit("toy", **fields) for fields, _ in EDITS.values()], of_size(4), hold_seconds=60),
        *(Step(what, (edit("toy", **fields),), of_size(size)) for what, (fields, size) in EDITS.items()),
    ),
    "a job is deleted while it forms, and applied again at once": (
        Step("a job forms", (nodes(2, 4), replica(), let_go(False), job(small=2, big=2)), (has_nodes,)),
        Step(
            "another of its name comes",
            (delete_job("toy"), job(small=2, big=2)),
            hold_seconds=30,
            never=(second_is_made,),
        ),
        Step(
            "it says why it waits",
            expect=(condition("toy", "Ready", "Starting", "not belong to this job"),),
        ),
        Step("the old pods are gone", (let_go(True),), (*of_size(2), second_is_made), hold_seconds=60),
    ),
    "what no node can give is named with what to do": (
        Step("an operator leads", (nodes(2, 4), replica())),
        *(
            Step(
                what,
                (job(what, big=1, template=wanted),),
                (condition(what, "FullSize", limit, words), condition(what, "Ready", "Queued"), settled(what, 0)),
            )
            for what, (wanted, limit, words) in TOO_MUCH.items()
        ),
    ),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", SCENARIOS)
def test_user_actions_have_the_documented_effect(name: str, seed: int) -> None:
    run_scenario(SCENARIOS[name], seed)
