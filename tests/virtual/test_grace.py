"""How long a pod that is told to go may stay: no longer than its team's ceiling, whatever it was made with."""

from __future__ import annotations

import pytest

from tests.simulate import server as kinds
from tests.simulate.facts import reservation_in, terminating
from tests.virtual.deeds import edit, job, let_go, nodes, replica, settled
from tests.virtual.story import Deed, Fact, Row, Story, tell
from tests.virtual.world import SETTINGS, ProcessWorld

RESERVATION_SECONDS = SETTINGS.reclaim.reservation_seconds
DAY = 86_400


def policy(seconds: int | None) -> Deed:
    """A policy for the job's team comes, with that ceiling."""
    reclaim = {} if seconds is None else {"gracePeriodSeconds": seconds}
    flavors = [{"name": "a", "guaranteed": 0}]
    spec = {"namespaces": ["free"], "flavors": flavors, "reclaim": reclaim}
    return lambda world: world.server.create(kinds.POLICIES, {"metadata": {"name": "free"}, "spec": spec})


def made_with(seconds: int) -> Fact:
    """All pods of the job have that grace."""
    return lambda world: {pod["spec"]["terminationGracePeriodSeconds"] for pod in world.pods("toy")} == {seconds}


def leaves_within(seconds: int) -> Fact:
    """A pod is leaving, and has so long."""

    def look(world: ProcessWorld) -> bool:
        leaving = [pod["metadata"] for pod in world.server.all(kinds.PODS) if terminating(pod)]
        return [meta["deletionGracePeriodSeconds"] for meta in leaving] == [seconds]

    return look


def begins(grace: int, *deeds: Deed) -> Row:
    """A job of two pods that ask for that grace."""
    asks = job(big=2, elasticity={"scaleUpDelaySeconds": 0, "gracePeriodSeconds": grace})
    return Row("a job runs", (nodes(1, 2), replica(), *deeds, asks), (settled("toy", 2),))


SHRINK = (let_go(False), edit("toy", maxReplicas=1))
STORIES: dict[str, Story] = {
    "a day is cut to five minutes where no policy says more": (
        begins(DAY),
        Row("made with the ceiling", comes=(made_with(300),)),
        Row("it shrinks", SHRINK, (leaves_within(300),)),
    ),
    "a policy may allow a day": (
        begins(DAY, policy(DAY)),
        Row("made as asked", comes=(made_with(DAY),)),
        Row("it shrinks", SHRINK, (leaves_within(DAY),)),
    ),
    "a ceiling that comes later is for pods that are there": (
        begins(200),
        Row("made as asked", comes=(made_with(200),)),
        Row("a policy comes", (policy(5),), stays=0.5),
        Row("it shrinks under it", SHRINK, (leaves_within(5),)),
    ),
    "no grace at all is a second, as a deletion by force would lose the pod's end": (
        begins(200, policy(0)),
        Row("it shrinks", SHRINK, (leaves_within(1),)),
    ),
}


def an_owner_asks_for_one(world: ProcessWorld) -> None:
    """A plain pod of a team that is guaranteed a GPU."""
    spec = {"namespaces": ["red"], "flavors": [{"name": "a", "guaranteed": 1}]}
    world.server.create(kinds.POLICIES, {"metadata": {"name": "red"}, "spec": spec})
    world.add_foreign("red", gpus=1, pool="a")


def kept_for(seconds: float) -> Fact:
    """A node is kept for a foreign pod, so long in all."""

    def look(world: ProcessWorld) -> bool:
        kept = [found for pod in world.server.all(kinds.PODS) if (found := reservation_in(pod))]
        return [one["until"] - one["since"] for one in kept] == [seconds]

    return look


def test_a_node_is_kept_for_a_foreign_pod_no_longer_than_the_grace_of_the_evicted_pods() -> None:
    story = (
        begins(200),
        Row("they have less time now", (policy(5), let_go(False)), stays=0.5),
        Row("somebody is entitled", (an_owner_asks_for_one,), (leaves_within(5), kept_for(5 + RESERVATION_SECONDS))),
    )
    tell(story, 1)


@pytest.mark.parametrize("name", STORIES)
def test_a_deleted_pod_gets_no_longer_grace_than_its_teams_ceiling(name: str) -> None:
    tell(STORIES[name], 1)
