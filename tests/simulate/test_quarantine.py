"""Cases of internal errors that random histories (`test_histories`) do not reach, or do not count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from elastic_operator.loop.reclaim.reclaim_reporter import ReclaimReporter
from elastic_operator.loop.reclaim.reclaim_times import ReclaimTimes
from elastic_operator.plan.allocation import allocate
from elastic_operator.plan.facts.eviction_limits import EvictionLimits
from elastic_operator.pods.launcher_target import Target
from elastic_operator.pods.master_poller import MasterPoller
from elastic_operator.read import policies
from elastic_operator.settings import ReclaimMode
from tests.simulate import operators
from tests.simulate import server as kinds
from tests.simulate.facts import name_of, owner_of, reservation_in, staying, terminating
from tests.simulate.operators import SETTINGS
from tests.simulate.raising import MadeUpError
from tests.simulate.server import Body
from tests.simulate.virtual_clock import VirtualClock
from tests.simulate.world import METRICS, World


def run_scenario(scenario: Callable[[World], Coroutine[Any, Any, None]], *, seed: int = 1) -> None:
    """Run the scenario in a new world, in which no master answers."""

    async def get(_poller: MasterPoller, _target: Target) -> bytes:
        raise OSError("no route to host")

    clock = VirtualClock()
    with clock.patch_time(Random(seed)), patch.object(MasterPoller, "_get", get):
        world = World(clock, Random(seed))
        with world.raising.rule():
            asyncio.run(scenario(world))


def pods_of(world: World, job: Body) -> list[Body]:
    """The job's pods that stay."""
    uid = job["metadata"]["uid"]
    pods = [pod for pod in world.server.all(kinds.PODS) if staying(pod)]
    return [pod for pod in pods if (owner := owner_of(pod)) and owner["uid"] == uid]


def add_job(world: World, namespace: str, **spec: Any) -> Body:
    """A job whose pods ask for a GPU each."""
    return world.add_job(namespace, gpus=1, pool="a", **spec)


def add_policy(world: World, name: str, *, guaranteed: int, limit: int) -> None:
    """A policy for the namespace of its name; it may borrow so many GPUs."""
    flavors = [{"name": "a", "guaranteed": guaranteed, "borrowing": {"limit": limit, "weight": 1}}]
    spec = {"flavors": flavors, "namespaces": [name]}
    world.server.create(kinds.POLICIES, {"metadata": {"name": name}, "spec": spec})


def errors(kind: str) -> float:
    """How many errors of the operator's own were counted at objects of that kind."""
    return METRICS.internal_errors.labels(kind)._value.get()


@pytest.mark.parametrize("pods_pass", [False, True], ids=["before-it-is-asked-about", "when-its-pods-have-passed"])
@pytest.mark.parametrize("station", ["reconcile", "act"])
def test_others_lose_pods_once_at_most_for_a_job_that_raises_at_what_it_is_given(station: str, pods_pass: bool) -> None:
    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        add_policy(world, "red", guaranteed=3, limit=0)
        add_policy(world, "blue", guaranteed=0, limit=8)
        good = add_job(world, "blue", minReplicas=1, maxReplicas=4)
        await world.advance(30)
        lost, before = list[str](), errors("job")
        bad = add_job(world, "red", minReplicas=3, maxReplicas=3)

        def hear(kind: str, _: Body | None, new: Body | None) -> None:
            if kind == kinds.PODS and new is not None and terminating(new):
                world.raising.begin(name_of(bad), station)
            lost.extend([kind] * (kind == kinds.PODS and new is None))

        world.server.listeners.append(hear)
        if not pods_pass:
            world.raising.begin(name_of(bad), station)
        await world.advance(1500)
        assert len(lost) == 3 * pods_pass
        assert len(pods_of(world, good)) == 4
        assert errors("job") - before < 25, "twice at each of 11 tries: at what was to be done, and at telling of it"
        world.server.listeners.remove(hear)
        world.raising.end(name_of(bad))
        await world.come_to_rest()
        assert len(pods_of(world, bad)) == 3

    run_scenario(scenario)


def test_place_of_a_foreign_pod_is_kept_until_the_pods_of_a_quarantined_job_are_deleted() -> None:
    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        add_policy(world, "red", guaranteed=0, limit=8)
        add_policy(world, "blue", guaranteed=3, limit=0)
        bad = add_job(world, "red", minReplicas=1, maxReplicas=4)
        await world.advance(30)
        world.raising.begin(name_of(bad), "observe")
        world.server.edit(kinds.JOBS, bad, {**bad["spec"], "maxReplicas": 5})
        await world.settle()
        world.machines.let_go = False
        foreign = world.add_foreign("blue", gpus=1, pool="a")
        await world.settle()
        kept = reservation_in(world.server.find(kinds.PODS, "blue", name_of(foreign)))
        grace = bad["spec"]["elasticity"]["gracePeriodSeconds"]
        assert kept["until"] - kept["since"] == grace + SETTINGS.reclaim.reservation_seconds

    run_scenario(scenario)


def test_a_policy_of_which_no_teams_can_be_made_is_quarantined_and_the_others_hold() -> None:
    work = policies.resolve

    def broken(found: Any, *arguments: Any, **more: Any) -> Any:
        if any(policy.name == "red" and policy.spec is not None for policy in found):
            raise MadeUpError("made up")
        return work(found, *arguments, **more)

    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        before = errors("policy")
        with patch.object(policies, "resolve", broken):
            add_policy(world, "red", guaranteed=1, limit=1)
            add_policy(world, "blue", guaranteed=1, limit=0)
            good = add_job(world, "blue", minReplicas=1, maxReplicas=4)
            await world.advance(30)
            assert len(pods_of(world, good)) == 1
            assert errors("policy") > before
            resolved = world.operator.controller.view.policies
            assert {p.code for found in resolved.problems.values() for p in found} == {"InternalError"}

    run_scenario(scenario)


def test_a_policy_of_whose_new_spec_no_teams_can_be_made_holds_as_it_was() -> None:
    work = policies.resolve

    def broken(found: Any, *arguments: Any, **more: Any) -> Any:
        if any(flavor.guaranteed == 3 for policy in found if policy.spec is not None for flavor in policy.spec.flavors):
            raise MadeUpError("made up")
        return work(found, *arguments, **more)

    def guaranteed(world: World) -> list[int]:
        return [
            team.quotas["a"].guaranteed
            for team in world.operator.controller.view.policies.teams.listed
            if team.has_policy
        ]

    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        add_policy(world, "red", guaranteed=2, limit=0)
        await world.settle()
        policy = world.server.find(kinds.POLICIES, "", "red")
        spec = {**policy["spec"], "flavors": [{**policy["spec"]["flavors"][0], "guaranteed": 3}]}
        world.server.edit(kinds.POLICIES, policy, spec)
        with patch.object(policies, "resolve", broken):
            await world.operator.run_pass()
            assert guaranteed(world) == [2]
        await world.advance(330)
        assert guaranteed(world) == [3]

    run_scenario(scenario)


def test_an_allocation_that_raises_whatever_the_jobs_are_is_blamed_on_none_of_them() -> None:
    def broken(_allocator: Any, _inputs: Any) -> Any:
        raise ValueError("made up")

    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        add_job(world, "blue", minReplicas=1, maxReplicas=1)
        before = errors("job")
        with patch.object(allocate.Allocator, "allocate", broken), pytest.raises(ValueError, match="made up"):
            await world.operator.run_pass()
        assert errors("job") == before

    run_scenario(scenario)


def test_error_that_only_the_limits_on_evictions_cause_is_blamed_on_its_job() -> None:
    allocate_all = allocate.Allocator.allocate

    def broken(allocator: Any, inputs: Any) -> Any:
        if inputs.eviction_limits != EvictionLimits() and any(job.namespace == "blue" for job in inputs.jobs):
            raise ValueError("made up")
        return allocate_all(allocator, inputs)

    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        bad, good = add_job(world, "blue", minReplicas=1, maxReplicas=1), add_job(world, "red", maxReplicas=1)
        before = errors("job")
        with patch.object(allocate.Allocator, "allocate", broken):
            await world.advance(10)
        assert errors("job") > before
        assert (len(pods_of(world, bad)), len(pods_of(world, good))) == (0, 1)

    run_scenario(scenario)


def test_an_error_in_what_the_mode_dry_run_only_reports_keeps_no_job_from_its_pods() -> None:
    allocate_all = allocate.Allocator.allocate

    def broken(allocator: Any, inputs: Any) -> Any:
        if inputs.reclaiming:
            raise ValueError("made up")
        return allocate_all(allocator, inputs)

    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        with patch.object(allocate.Allocator, "allocate", broken):
            job = add_job(world, "blue", minReplicas=2, maxReplicas=2)
            for _ in range(3):
                await world.operator.run_pass()
        assert len(pods_of(world, job)) == 2

    reclaim = SETTINGS.reclaim.model_copy(update={"mode": ReclaimMode.DRY_RUN})
    with patch.object(operators, "SETTINGS", SETTINGS.model_copy(update={"reclaim": reclaim})):
        run_scenario(scenario)


@pytest.mark.parametrize("report", [(ReclaimTimes, "note_allocation"), (ReclaimReporter, "no_room")])
def test_a_report_that_raises_keeps_no_job_from_its_pods(report: tuple[Any, str]) -> None:
    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        with patch.object(*report, side_effect=MadeUpError("a report")):
            job = add_job(world, "red", minReplicas=2, maxReplicas=2)
            await world.advance(30)
            assert len(pods_of(world, job)) == 2

    run_scenario(scenario)
