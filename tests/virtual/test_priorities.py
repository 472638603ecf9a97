"""PriorityClasses in templates: pods of jobs never preempt others, and a class never costs a job its pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.jobs import make_container, make_template
from tests.simulate import server as kinds
from tests.simulate.facts import GPU, POOL, name_of
from tests.simulate.server import Body
from tests.virtual.actions import condition, edit, event, job, nodes, replica, settled
from tests.virtual.scenario import Action, Condition, Scenario, Step, run_scenario
from tests.virtual.world import ProcessWorld

TOLD = "PodPriorityIgnored"
OURS = ("elastic-pytorch-master", "elastic-pytorch-worker")


def template(**pod: Any) -> Body:
    """Of a pod with one GPU."""
    return make_template(make_container(resources={"limits": {GPU: 1}}), nodeSelector={POOL: "a"}, **pod)


def classes(*names: str) -> Condition:
    """The classes of the job's pods, the master first."""
    return lambda world: (
        tuple(pod["spec"]["priorityClassName"] for pod in sorted(world.pods("toy"), key=name_of)) == names
    )


def preempts(world: ProcessWorld) -> bool:
    """Whether a pod of the job may preempt others."""
    return any(pod["spec"]["preemptionPolicy"] != "Never" for pod in world.pods("toy"))


def without_word(world: ProcessWorld) -> bool:
    """The job says nothing about priorities."""
    return all(each["type"] != TOLD for each in world.status("toy")["conditions"])


def remove_class(name: str) -> Action:
    """An administrator deletes the class."""
    return lambda world: world.server.remove(
        kinds.PRIORITY_CLASSES, world.server.find(kinds.PRIORITY_CLASSES, "", name) or {}
    )


def starts(**spec: Any) -> tuple[Action, ...]:
    """A job of at most two pods."""
    return nodes(1, 4), replica(), job(big=2, **spec)


def ignored(why: str) -> tuple[Condition, ...]:
    """The pods have our classes, and it is said why."""
    return settled("toy", 2), classes(*OURS), condition("toy", TOLD, "PodsNeverPreempt", why), event("toy", TOLD)


URGENT = "spec.template.spec.priorityClassName is 'urgent', and its pods would preempt others."
SCENARIOS: dict[str, Scenario] = {
    "a class that preempts": (
        Step(
            "ours are taken", starts(template=template(priorityClassName="urgent")), ignored(URGENT), never=(preempts,)
        ),
    ),
    "a class that preempts, and the words that go with it": (
        Step(
            "ours are taken",
            starts(
                template=template(priorityClassName="urgent", priority=1000, preemptionPolicy="PreemptLowerPriority")
            ),
            ignored(URGENT),
            never=(preempts,),
        ),
    ),
    "a class of the workers only": (
        Step(
            "ours are taken",
            starts(template=template(), worker={"template": template(priorityClassName="urgent")}),
            ignored("spec.worker.template.spec.priorityClassName is 'urgent'"),
            never=(preempts,),
        ),
    ),
    "a class that is not there": (
        Step("ours are taken", starts(template=template(priorityClassName="gone")), ignored("no such PriorityClass")),
    ),
    "a priority without a class": (
        Step("ours are taken", starts(template=template(priority=0)), ignored("spec.template.spec.priority is 0")),
    ),
    "a class that never preempts, and goes": (
        Step(
            "it is taken",
            starts(template=template(priorityClassName="polite")),
            (settled("toy", 2), classes("polite", "polite"), without_word),
        ),
        Step("the class goes", (remove_class("polite"),), hold_seconds=0.5),
        Step(
            "the job runs on, and grows",
            (edit("toy", maxReplicas=3),),
            (settled("toy", 3), classes("polite", "polite", OURS[1]), condition("toy", TOLD, "PodsNeverPreempt")),
            never=(preempts,),
        ),
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_pods_of_jobs_never_preempt_others(name: str) -> None:
    run_scenario(SCENARIOS[name], 1)
