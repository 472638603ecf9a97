"""A deleted pod ends within its team's longest grace period, whatever grace period it was created with."""

from __future__ import annotations

import pytest

from tests.simulate import server as kinds
from tests.simulate.facts import reservation_in, terminating
from tests.virtual.actions import edit, job, let_go, nodes, replica, settled
from tests.virtual.scenario import Action, Condition, Scenario, Step, run_scenario
from tests.virtual.world import SETTINGS, ProcessWorld

RESERVATION_SECONDS = SETTINGS.reclaim.reservation_seconds
DAY = 86_400


def policy(seconds: int | None) -> Action:
    """A policy for the job's team comes, with that ceiling."""
    reclaim = {} if seconds is None else {"gracePeriodSeconds": seconds}
    flavors = [{"name": "a", "guaranteed": 0}]
    spec = {"namespaces": ["free"], "flavors": flavors, "reclaim": reclaim}
    return lambda world: world.server.create(kinds.POLICIES, {"metadata": {"name": "free"}, "spec": spec})


def made_with(seconds: int) -> Condition:
    """All pods of the job have that grace."""
    return lambda world: {pod["spec"]["terminationGracePeriodSeconds"] for pod in world.pods("toy")} == {seconds}


def leaves_within(seconds: int) -> Condition:
    """A pod is leaving, and has so long."""

    def look(world: ProcessWorld) -> bool:
        leaving = [pod["metadata"] for pod in world.server.all(kinds.PODS) if terminating(pod)]
        return [meta["deletionGracePeriodSeconds"] for meta in leaving] == [seconds]

    return look


def begins(grace: int, *actions: Action) -> Step:
    """A job of two pods that ask for that grace."""
    asks = job(big=2, elasticity={"scaleUpDelaySeconds": 0, "gracePeriodSeconds": grace})
    return Step("a job runs", (nodes(1, 2), replica(), *actions, asks), (settled("toy", 2),))


SHRINK = (let_go(False), edit("toy", maxReplicas=1))
SCENARIOS: dict[str, Scenario] = {
    "a day is cut to five minutes where no policy says more": (
        begins(DAY),
        Step("made with the ceiling", expect=(made_with(300),)),
        Step("it shrinks", SHRINK, (leaves_within(300),)),
    ),
    "a policy may allow a day": (
        begins(DAY, policy(DAY)),
        Step("made as asked", expect=(made_with(DAY),)),
        Step("it shrinks", SHRINK, (leaves_within(DAY),)),
    ),
    "a ceiling that comes later is for pods that are there": (
        begins(200),
        Step("made as asked", expect=(made_with(200),)),
        Step("a policy comes", (policy(5),), hold_seconds=0.5),
        Step("it shrinks under it", SHRINK, (leaves_within(5),)),
    ),
    "no grace at all is a second, as a deletion by force would lose the pod's end": (
        begins(200, policy(0)),
        Step("it shrinks", SHRINK, (leaves_within(1),)),
    ),
}


def an_owner_asks_for_one(world: ProcessWorld) -> None:
    """A plain pod of a team that is guaranteed a GPU."""
    spec = {"namespaces": ["red"], "flavors": [{"name": "a", "guaranteed": 1}]}
    world.server.create(kinds.POLICIES, {"metadata": {"name": "red"}, "spec": spec})
    world.add_foreign("red", gpus=1, pool="a")


def kept_for(seconds: float) -> Condition:
    """A node is kept for a foreign pod, so long in all."""

    def look(world: ProcessWorld) -> bool:
        kept = [found for pod in world.server.all(kinds.PODS) if (found := reservation_in(pod))]
        return [one["until"] - one["since"] for one in kept] == [seconds]

    return look


def test_a_node_is_kept_for_a_foreign_pod_no_longer_than_the_grace_of_the_evicted_pods() -> None:
    scenario = (
        begins(200),
        Step("they have less time now", (policy(5), let_go(False)), hold_seconds=0.5),
        Step("somebody is entitled", (an_owner_asks_for_one,), (leaves_within(5), kept_for(5 + RESERVATION_SECONDS))),
    )
    run_scenario(scenario, 1)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_deleted_pod_gets_no_longer_grace_than_its_teams_ceiling(name: str) -> None:
    run_scenario(SCENARIOS[name], 1)
