"""If many jobs change at once, a pass makes a limited number of plans, and the next pass continues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from elastic_operator.cluster.errors import Unreachable
from elastic_operator.loop import reason_messages, reconciler
from elastic_operator.loop import store_view as stored
from elastic_operator.plan import observed_jobs
from elastic_operator.read import specs
from elastic_operator.read.foreign import foreign_pods as waiting_pods
from tests.simulate import server as kinds
from tests.simulate.facts import name_of, owner_of
from tests.simulate.policies import NAMESPACES
from tests.simulate.test_quarantine import pods_of, run_scenario
from tests.simulate.world import World

JOBS, AT_ONCE = 10, 3


def noted(work: Callable[..., Any], of: Callable[..., str], calls: list[str]) -> Callable[..., Any]:
    """The same, each call noted."""

    def call(*arguments: Any, **more: Any) -> Any:
        calls.append(of(*arguments))
        return work(*arguments, **more)

    return call


def with_jobs(world: World, number: int, **spec: Any) -> None:
    """So many jobs of one pod, and room for all of them."""
    world.add_node(8 * number, "a", cpu=1000)
    for _ in range(number):
        world.add_job(NAMESPACES[0], gpus=1, pool="a", minReplicas=1, maxReplicas=1, **spec)


def owners(world: World) -> set[str]:
    """The jobs that have a pod."""
    return {owner["name"] for pod in world.server.all(kinds.PODS) if (owner := owner_of(pod))}


def test_some_of_many_new_jobs_start_in_each_pass_and_do_not_delay_the_others():
    async def scenario(world: World) -> None:
        with_jobs(world, JOBS)
        started = []
        for _ in range(4):
            await world.run_pass()
            started.append(len(owners(world)))
            assert world.wait == 0.01
            world.machines.step()  # those that started have news by the next pass
        assert started == [3, 6, 9, 10]

    with patch.object(reconciler, "MAX_PLANS", AT_ONCE):
        run_scenario(scenario)


def test_a_new_leader_acts_first_where_a_pod_is_to_come() -> None:
    async def scenario(world: World) -> None:
        with_jobs(world, JOBS)
        await world.come_to_rest()
        *_, last = world.operator.stores.jobs
        (lost,) = (pod for pod in world.server.all(kinds.PODS) if owner_of(pod)["name"] == last.metadata.name)
        world.server.remove(kinds.PODS, lost)
        world.operator.controller.forget()
        await world.run_pass()
        assert last.metadata.name in owners(world)

    with patch.object(reconciler, "MAX_PLANS", AT_ONCE):
        run_scenario(scenario)


def test_the_first_pass_of_a_new_leader_makes_few_plans_besides_those_with_pods_to_create() -> None:
    """Its writes begin when it has ended (211)."""

    async def scenario(world: World) -> None:
        with_jobs(world, JOBS)
        await world.come_to_rest()
        lost = next(iter(world.server.all(kinds.PODS)))
        world.server.remove(kinds.PODS, lost)
        world.operator.controller.forget()
        world.operator.controller.planner.plans._plans.clear()
        planned = list[str]()
        reconcile = noted(reconciler.reconcile, lambda seen, *_: seen.job.name, planned)
        with patch.object(reconciler, "reconcile", reconcile):
            await world.run_pass()
            assert (len(planned), owner_of(lost)["name"] in planned) == (AT_ONCE + 1, True)
            await world.run_pass()
        assert set(planned) == {job["metadata"]["name"] for job in world.server.all(kinds.JOBS)}

    with patch.object(reconciler, "FIRST_PLANS", AT_ONCE):
        run_scenario(scenario)


def test_no_plan_is_made_from_a_spec_that_has_changed_since_the_job_was_last_looked_at():
    async def scenario(world: World) -> None:
        with_jobs(world, JOBS, suspend=True)
        await world.come_to_rest()
        for job in world.server.all(kinds.JOBS):
            world.server.edit(kinds.JOBS, job, {**job["spec"], "suspend": False})
        jobs, planned = world.operator.stores.jobs, list[tuple[int, int]]()

        def reconcile(obs: Any, *arguments: Any, **more: Any) -> Any:
            planned.append((obs.job.generation, jobs.get(obs.job.uid).metadata.generation))
            return reconcile_as_it_is(obs, *arguments, **more)

        reconcile_as_it_is = reconciler.reconcile
        with patch.object(reconciler, "reconcile", reconcile):
            for _ in range(6):
                world.clock.passed += reason_messages.REASON_MESSAGES_SECONDS
                await world.run_pass()
        assert len(owners(world)) == JOBS
        assert {old for old, new in planned if old != new} == set()

    with patch.object(reconciler, "MAX_PLANS", AT_ONCE):
        run_scenario(scenario)


def test_all_jobs_are_decided_on_again_in_time_some_of_them_at_a_time():
    async def scenario(world: World) -> None:
        with_jobs(world, JOBS)
        await world.come_to_rest()
        looked, plans, per_pass = list[str](), list[str](), list[tuple[int, int]]()
        observe = noted(observed_jobs.observe, lambda job, *_: job.name, looked)
        reconcile = noted(reconciler.reconcile, lambda seen, *_: seen.job.name, plans)
        with patch.object(observed_jobs, "observe", observe), patch.object(reconciler, "reconcile", reconcile):
            for _ in range(int(reconciler.RESYNC_SECONDS) + 10):
                before = len(looked), len(plans)
                world.clock.passed += 1.0
                await world.operator.run_pass()
                per_pass.append((len(looked) - before[0], len(plans) - before[1]))
        assert max(per_pass) == (AT_ONCE, AT_ONCE)
        assert len(set(looked)) == len(set(plans)) == JOBS

    with patch.object(reconciler, "MAX_PLANS", AT_ONCE):
        run_scenario(scenario)


def test_new_objects_are_read_one_in_each_turn_of_the_event_loop_and_the_pass_uses_them():
    async def scenario(world: World) -> None:
        with_jobs(world, JOBS)
        world.add_node(0, "b")
        for _ in range(JOBS):
            world.add_foreign(NAMESPACES[0], gpus=1, pool="b")
        world.machines.step()
        turns, read_in = 0, list[int]()

        def turn(*_: Any) -> str:
            read_in.append(turns)
            return ""

        parse = noted(specs.parse_spec, turn, [])
        look = noted(waiting_pods.foreign_pod_of, turn, [])
        with patch.object(specs, "parse_spec", parse), patch.object(waiting_pods, "foreign_pod_of", look):
            ahead = asyncio.ensure_future(world.operator.controller._read_ahead())
            while not ahead.done():
                turns += 1
                await asyncio.sleep(0)
            assert len(read_in) == len(set(read_in)) == 2 * JOBS
            await world.run_pass()
            assert len(read_in) == 2 * JOBS
        assert len(owners(world)) == JOBS

    with patch.object(stored, "FEW_JOBS", AT_ONCE), patch.object(waiting_pods, "FEW_PODS", AT_ONCE):
        run_scenario(scenario)


def test_jobs_that_are_read_ahead_are_read_again_only_if_they_change_before_the_pass() -> None:
    async def scenario(world: World) -> None:
        with_jobs(world, JOBS)
        controller, read = world.operator.controller, list[str]()
        with patch.object(controller.view, "read_job", noted(controller.view.read_job, str, read)):
            await controller.read_jobs_ahead()
            assert len(read) == len(set(read)) == JOBS
            changed = next(iter(world.server.all(kinds.JOBS)))
            world.server.edit(kinds.JOBS, changed, {**changed["spec"], "maxReplicas": 2})
            await world.operator.run_pass()
            assert read[JOBS:] == [changed["metadata"]["uid"]]
        assert len(owners(world)) == JOBS

    with patch.object(stored, "FEW_JOBS", AT_ONCE):
        run_scenario(scenario)


def test_jobs_that_reading_ahead_did_not_come_to_are_read_by_the_pass() -> None:
    async def scenario(world: World) -> None:
        with_jobs(world, JOBS)
        controller, read = world.operator.controller, list[str]()
        with patch.object(controller.view, "read_job", noted(controller.view.read_job, str, read)):
            ahead = asyncio.ensure_future(controller.read_jobs_ahead())
            for _ in range(JOBS // 2):
                await asyncio.sleep(0)
            assert 0 < len(read) < JOBS
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)
            await world.run_pass()
        assert len(set(read)) == JOBS
        assert len(owners(world)) == JOBS

    with patch.object(stored, "FEW_JOBS", AT_ONCE):
        run_scenario(scenario)


def test_a_failure_that_a_standby_has_read_ahead_is_handled_by_its_first_passes_as_the_leader() -> None:
    """A standby reads no logs. Until its log is read, a failed pod counts as running."""

    async def scenario(world: World) -> None:
        with_jobs(world, JOBS)
        await world.come_to_rest()
        failed = next(iter(world.server.all(kinds.JOBS)))
        world._replace_operator()
        (master,) = pods_of(world, failed)
        world.machines.end(master, 3)
        with patch.object(world.operator.wire, "remaining", lambda: 0.0):
            await world.operator.controller.read_jobs_ahead()
        for _ in range(3):
            await world.operator.run_pass()
        (status,) = (job["status"] for job in world.server.all(kinds.JOBS) if name_of(job) == name_of(failed))
        assert status["failures"] == 1

    with patch.object(stored, "FEW_JOBS", AT_ONCE):
        run_scenario(scenario)


def test_jobs_whose_next_try_is_not_due_do_not_use_up_the_plans_of_a_pass() -> None:
    async def scenario(world: World) -> None:
        with_jobs(world, JOBS)
        await world.run_pass()
        controller = world.operator.controller
        in_trouble = [obs.job for obs in controller.planner.decided.obs.values()]
        for job in in_trouble:
            controller.reconciler.dispatcher.note(job, Unreachable("no answer"))
        with_jobs(world, 1)
        await world.run_pass()
        assert len(owners(world) - {job.name for job in in_trouble}) == 1

    with patch.object(reconciler, "MAX_PLANS", AT_ONCE):
        run_scenario(scenario)


def test_no_plan_is_made_for_a_job_while_one_is_carried_out() -> None:
    calls: list[str] = []
    reconcile = noted(reconciler.reconcile, lambda obs, *_: str(obs.job.name), calls)

    async def scenario(world: World) -> None:
        with_jobs(world, JOBS)
        controller = world.operator.controller
        with patch.object(reconciler, "reconcile", reconcile):
            controller.run_pass()
            assert len(calls) == JOBS
            controller.run_pass()
            assert len(calls) == JOBS
        await world.advance(30)
        assert sum(bool(owner_of(pod)) for pod in world.server.all(kinds.PODS)) == JOBS

    run_scenario(scenario)
