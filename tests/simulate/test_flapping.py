"""A planner that goes in a circle: its jobs are held after some rounds, and others still get what is theirs (143)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any
from unittest.mock import patch

import pytest

from elastic_operator.metrics.job_series import job_families
from elastic_operator.plan.allocation.allocate import Allocator
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.read import job_contexts
from tests.simulate import server as kinds
from tests.simulate.server import Body
from tests.simulate.test_eviction_limits import Evicted, limited_by
from tests.simulate.test_quarantine import add_job, add_policy, pods_of, run_scenario
from tests.simulate.world import World

MINUTE = 60.0


@contextmanager
def in_a_circle() -> Iterator[None]:
    """The planner gives each job a pod less than it could have, and in the next pass all of them."""
    real, less = Allocator.allocate, False

    def smaller(job: JobDemand) -> JobDemand:
        may = (
            len(job.sizes) > 1 and (job.failed is None or job.failed.until < inf) and len(job.members) == job.sizes[-1]
        )
        return replace(job, sizes=job.sizes[:-1]) if may else job

    def allocate(self: Allocator, inputs: AllocationInputs) -> Allocation:
        nonlocal less
        less = not less
        return real(self, replace(inputs, jobs=tuple(map(smaller, inputs.jobs))) if less else inputs)

    with patch.object(Allocator, "allocate", allocate):
        yield


def shuffled(scenario: Any) -> None:
    """Run the scenario without the checks of each allocation, because its planner is broken."""

    async def calm(world: World) -> None:
        with (
            patch.object(world.checker, "after_pass", lambda _: None),
            patch.object(world.checker, "at_pause", lambda: None),
        ):
            await scenario(world)

    run_scenario(calm)


async def minutes(world: World, count: int) -> None:
    """So many minutes pass, with a look at each second."""
    for _ in range(int(count * MINUTE)):
        await world.go_on(rounds=1)


def status_of(world: World, job: Body) -> Any:
    """As it is now."""
    return next(one for one in world.server.all(kinds.JOBS) if one["metadata"]["uid"] == job["metadata"]["uid"])[
        "status"
    ]


def flapping(world: World) -> float:
    """The metric."""
    families = {family.name: family for family in job_families(world.operator.all_stats())}
    return families["elastic_pytorch_flapping_jobs"].samples[0].value


def is_flapping(world: World, job: Body) -> bool:
    """By its condition."""
    flapping = [one for one in status_of(world, job)["conditions"] if one["type"] == "Flapping"]
    return bool(flapping) and flapping[0]["status"] == "True"


def test_flapping_job_is_held_for_ten_minutes_after_four_changes() -> None:
    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        evicted = Evicted(world)
        job = add_job(world, "free", minReplicas=1, maxReplicas=4)
        with in_a_circle():
            await minutes(world, 1)
            assert is_flapping(world, job)
            assert limited_by(world, job)[0] == "ChangedTooOften"
            assert flapping(world) == 1
            lost, pods = len(evicted.times), len(pods_of(world, job))
            assert lost <= 2
            await minutes(world, 8)
            assert (len(evicted.times), len(pods_of(world, job))) == (lost, pods)
            world._replace_operator()
            await minutes(world, 1)
            assert (len(evicted.times), len(pods_of(world, job))) == (lost, pods)
        await minutes(world, 2)
        assert not is_flapping(world, job)
        assert flapping(world) == 0
        assert len(pods_of(world, job)) == 4
        assert "Flapping" in {event["reason"] for event in world.server.all(kinds.EVENTS)}

    shuffled(scenario)


def test_a_job_that_is_held_gives_back_at_once_what_another_team_is_entitled_to() -> None:
    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        add_policy(world, "red", guaranteed=2, limit=0)
        add_policy(world, "green", guaranteed=0, limit=100)
        job = add_job(world, "green", minReplicas=1, maxReplicas=4)
        with in_a_circle():
            await minutes(world, 1)
        assert is_flapping(world, job)
        held = len(pods_of(world, job))
        owner = add_job(world, "red", minReplicas=2, maxReplicas=2)
        await world.advance(20)
        assert len(pods_of(world, owner)) == 2
        assert len(pods_of(world, job)) == min(held, 2)
        assert is_flapping(world, job)

    shuffled(scenario)


def test_an_edit_of_the_job_lets_it_go() -> None:
    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        job = add_job(world, "free", minReplicas=1, maxReplicas=4)
        with in_a_circle():
            await minutes(world, 1)
        assert is_flapping(world, job)
        now = world.server.find(kinds.JOBS, "free", job["metadata"]["name"])
        assert now is not None
        world.server.edit(kinds.JOBS, now, {**now["spec"], "maxReplicas": 3})
        await world.advance(10)
        assert not is_flapping(world, job)
        assert len(pods_of(world, job)) == 3

    shuffled(scenario)


@pytest.mark.parametrize("what", ["a node comes", "a plain pod comes", "another job comes", "a policy is edited"])
def test_what_follows_each_time_from_something_new_is_no_circle(what: str) -> None:
    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        job = add_job(world, "free", minReplicas=1, maxReplicas=4)
        happens = {
            "a node comes": lambda: world.add_node(1, "b"),
            "a plain pod comes": lambda: world.add_foreign("free", gpus=1, pool="b"),
            "another job comes": lambda: world.add_job("free", gpus=1, pool="b", minReplicas=1, maxReplicas=1),
            "a policy is edited": lambda: add_policy(world, world.new_name("p"), guaranteed=0, limit=0),
        }[what]
        with in_a_circle():
            for _ in range(60):
                happens()
                await world.go_on(rounds=1)
        assert not is_flapping(world, job)

    shuffled(scenario)


def test_without_the_limit_on_changes_the_circle_goes_on() -> None:
    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        evicted = Evicted(world)
        add_job(world, "free", minReplicas=1, maxReplicas=4)
        with in_a_circle(), patch.object(job_contexts, "may_flap", lambda *_: False):
            await minutes(world, 1)
        assert len(evicted.times) > 10

    shuffled(scenario)
