"""What users and administrators change in a soak: policies, jobs of the fake nodes, and the two trainings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from tests.simulate import random_events as simulated
from tests.simulate import server as kinds
from tests.soak.plan import Kind
from tests.soak.site import REAL
from tests.soak.stage import Deeds, Stage
from tests.soak.world import GUESTS, TRAINERS

GUARANTEED = 2
"""GPUs of each team on real nodes; a training's smallest size is within it whatever is edited."""


def real_policy(rng: Random, team: str) -> dict[str, Any]:
    """What such a team may be given. All guarantees together are no more than the nodes have."""
    guaranteed = GUARANTEED if team == GUESTS else rng.choice((1, GUARANTEED))
    borrowing: dict[str, Any] = {"weight": rng.choice((1, 1, 2, 4))}
    if rng.random() < 0.4:
        borrowing["limit"] = rng.choice((0, 1, 2))
    flavors = [{"name": REAL, "guaranteed": guaranteed, "borrowing": borrowing}]
    return {"flavors": flavors, "namespaces": [team], "priority": rng.choice((0, 0, 5))}


def real_policy_is_edited(stage: Stage, rng: Random) -> Iterator[str]:
    """A training's team gets another policy."""
    team, server = rng.choice(TRAINERS), stage.world.whole
    known, spec = server.find(kinds.POLICIES, "", team), real_policy(rng, team)
    if known is None:
        server.create(kinds.POLICIES, {"metadata": {"name": team}, "spec": spec})
    else:
        server.edit(kinds.POLICIES, known, spec)
    yield f"policy {team} is edited: {spec}"


def training_is_resized(stage: Stage, rng: Random) -> Iterator[str]:
    """One of the two gets another largest size."""
    yield stage.trainings[rng.choice(TRAINERS)].resize(rng)


def training_is_suspended(stage: Stage, rng: Random) -> Iterator[str]:
    """One of the two is suspended, and goes on."""
    training = stage.trainings[rng.choice(TRAINERS)]
    training.suspend(suspend=True)
    yield f"{training.name} is suspended for a while"
    training.suspend(suspend=False)


def _as_simulated(*events: Callable[[Any], str]) -> Callable[[Stage, Random], Iterator[str]]:
    """The first of these that can happen on the fake nodes."""

    def happens(stage: Stage, rng: Random) -> Iterator[str]:
        stage.world.rng = rng
        yield next(filter(None, (event(stage.world) for event in events)), "")

    return happens


def job_ends_or_goes(world: Any) -> str:
    """A job's pods end well, or its user deletes it."""
    first, second = world.rng.sample((simulated.job_succeeds, simulated.job_goes), 2)
    told: str = first(world) or second(world)
    return told


POLICY, JOB, TURN = "policy", "job", "turn"
EDITS: Mapping[Kind, Deeds] = {
    Kind(POLICY, "real policy edited", times=3): real_policy_is_edited,
    Kind(POLICY, "policy edited", times=3): _as_simulated(simulated.policy_comes_or_is_edited),
    Kind(POLICY, "policy deleted"): _as_simulated(simulated.policy_goes, simulated.policy_comes_or_is_edited),
    Kind(JOB, "training resized", times=5): training_is_resized,
    Kind(JOB, "training suspended", (4.0, 10.0)): training_is_suspended,
    Kind(JOB, "job edited", times=3): _as_simulated(simulated.job_is_edited),
    Kind(JOB, "job suspended or resumed", times=2): _as_simulated(
        simulated.job_is_suspended_or_resumed, simulated.job_is_edited
    ),
    Kind(TURN, "job ends or is deleted"): _as_simulated(job_ends_or_goes),
}
"""By kind, what is done; `TURN` is no edit: jobs come and go all the time."""
