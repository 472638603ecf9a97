"""A reclaim that is too large waits by itself, and says so; all others go on (138)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any
from unittest.mock import patch

from elastic_operator.cluster.errors import Unreachable
from elastic_operator.loop.reclaim.reclaim_reporter import ReclaimReporter
from elastic_operator.settings import ReclaimSettings
from tests.simulate import operators
from tests.simulate import server as kinds
from tests.simulate.facts import node_of, terminating
from tests.simulate.operators import SETTINGS
from tests.simulate.raising import MadeUpError
from tests.simulate.server import Body
from tests.simulate.test_quarantine import add_job, add_policy, pods_of, run_scenario
from tests.simulate.world import METRICS, World


def with_limits(**reclaim: Any) -> Any:
    """Operators with these settings of reclaim."""
    found = SETTINGS.model_copy(update={"reclaim": SETTINGS.reclaim.model_copy(update=reclaim)})
    return patch.object(operators, "SETTINGS", found)


def limited_by(world: World, job: Body) -> tuple[str, str]:
    """What the job says of why it is not bigger: reason and sentence."""
    [now] = [one for one in world.server.all(kinds.JOBS) if one["metadata"]["uid"] == job["metadata"]["uid"]]
    [full_size] = [one for one in now["status"]["conditions"] if one["type"] == "FullSize"]
    return full_size["reason"], full_size["message"]


def teams(world: World, *, nodes: int = 4, **guaranteed: int) -> Body:
    """Nodes of 4 GPUs each, teams with these guarantees, and a job of `green`'s that has borrowed all of it."""
    for _ in range(nodes):
        world.add_node(4, "a")
    for name, gpus in guaranteed.items():
        add_policy(world, name, guaranteed=gpus, limit=0)
    add_policy(world, "green", guaranteed=0, limit=100)
    return add_job(world, "green", minReplicas=1, maxReplicas=4 * nodes)


class Evicted:
    """The pods that were told to go, with when."""

    def __init__(self, world: World) -> None:
        self.times: list[float] = []
        self._world, self._known = world, set[str]()
        world.server.listeners.append(self._heard)

    def _heard(self, plural: str, _: Body | None, new: Body | None) -> None:
        if plural == kinds.PODS and new is not None and terminating(new):
            uid = new["metadata"]["uid"]
            if uid not in self._known:
                self._known.add(uid)
                self.times.append(self._world.clock.passed)

    def most_in_a_minute(self) -> int:
        """The most that were told to go within any minute."""
        return max((sum(begin <= time < begin + 60 for time in self.times) for begin in self.times), default=0)


def test_minimum_over_the_eviction_limit_waits_and_blocks_no_other_team() -> None:
    async def scenario(world: World) -> None:
        teams(world, red=12, blue=2)
        await world.advance(30)
        large = add_job(world, "red", minReplicas=10, maxReplicas=10)
        await world.settle()
        small = add_job(world, "blue", minReplicas=2, maxReplicas=2)
        await world.advance(1800)
        assert len(pods_of(world, large)) == 0
        assert len(pods_of(world, small)) == 2
        reason, message = limited_by(world, large)
        assert reason == "ReclaimTooLarge"
        assert "10 pods of others would have to be evicted for it at once" in message
        assert "reclaim.maxEvictionsPerDecision (8)" in message
        assert "Raise this limit in the operator's settings" in message
        assert (METRICS.waiting_for_limit._value.get(), METRICS.too_large._value.get()) == (1, 1)

    with with_limits(max_evictions_per_decision=8, max_evictions_per_minute=100):
        run_scenario(scenario)


def test_growth_that_would_evict_too_many_comes_in_slices_of_a_minute_each() -> None:
    async def scenario(world: World) -> None:
        teams(world, red=10)
        await world.advance(30)
        evicted = Evicted(world)
        job = add_job(world, "red", minReplicas=1, maxReplicas=10)
        await world.advance(20)
        assert 4 <= len(pods_of(world, job)) <= 5
        reason, message = limited_by(world, job)
        assert reason == "ReclaimTooLarge"
        assert "reclaim.maxEvictionsPerDecision (4)" in message
        assert message.endswith("Wait.")
        assert (METRICS.waiting_for_limit._value.get(), METRICS.too_large._value.get()) == (1, 0)
        await world.advance(200)
        assert len(pods_of(world, job)) == 10
        assert evicted.most_in_a_minute() == 4
        assert METRICS.waiting_for_limit._value.get() == 0

    with with_limits(max_evictions_per_decision=4, max_evictions_per_minute=100):
        run_scenario(scenario)


def test_of_two_large_ones_both_go_on_in_slices_and_neither_waits_for_the_other() -> None:
    async def scenario(world: World) -> None:
        teams(world, red=6, blue=6)
        await world.advance(30)
        jobs = [add_job(world, name, minReplicas=1, maxReplicas=6) for name in ("red", "blue")]
        await world.advance(20)
        assert [len(pods_of(world, job)) for job in jobs] == [3, 3]
        await world.advance(120)
        assert [len(pods_of(world, job)) for job in jobs] == [6, 6]

    with with_limits(max_evictions_per_decision=3, max_evictions_per_minute=100):
        run_scenario(scenario)


def test_many_small_preemptors_are_served_as_many_in_a_minute_as_may_go_in_all() -> None:
    async def scenario(world: World) -> None:
        teams(world, red=8)
        await world.advance(30)
        evicted = Evicted(world)
        pods = [world.add_foreign("red", gpus=1, pool="a") for _ in range(8)]
        await world.advance(50)
        assert len(evicted.times) == 4
        await world.advance(150)
        found = {pod["metadata"]["uid"]: pod for pod in world.server.all(kinds.PODS)}
        assert all(node_of(found[pod["metadata"]["uid"]]) for pod in pods)
        assert evicted.most_in_a_minute() == 4

    with with_limits(max_evictions_per_decision=4, max_evictions_per_minute=4):
        run_scenario(scenario)


def test_large_preemptor_gets_its_turn_though_small_ones_of_others_come_each_minute() -> None:
    async def scenario(world: World) -> None:
        teams(world, red=9, blue=7)
        await world.advance(30)
        evicted = Evicted(world)
        small = [add_job(world, "blue", minReplicas=1, maxReplicas=1)]
        await world.advance(10)
        gang = add_job(world, "red", minReplicas=8, maxReplicas=8)
        await world.advance(10)
        later = add_job(world, "red", minReplicas=1, maxReplicas=1)
        for _ in range(6):
            assert not pods_of(world, later) or pods_of(world, gang)
            await world.advance(30)
            small.append(add_job(world, "blue", minReplicas=1, maxReplicas=1))
        assert len(pods_of(world, gang)) == 8
        await world.advance(120)
        assert all(pods_of(world, job) for job in (*small, later))
        assert evicted.most_in_a_minute() <= 8

    with with_limits(max_evictions_per_decision=8, max_evictions_per_minute=8):
        run_scenario(scenario)


def test_a_minimum_that_waits_starts_once_the_setting_is_raised() -> None:
    async def scenario(world: World) -> None:
        teams(world, red=12)
        await world.advance(30)
        large = add_job(world, "red", minReplicas=10, maxReplicas=10)
        await world.advance(300)
        assert len(pods_of(world, large)) == 0
        with with_limits(max_evictions_per_decision=10):
            world._replace_operator()
            await world.advance(60)
        assert len(pods_of(world, large)) == 10

    with with_limits(max_evictions_per_decision=8):
        run_scenario(scenario)


def test_by_default_half_of_the_gpus_and_at_least_sixteen_pods_may_be_evicted_for_one() -> None:
    def most(gpus: int) -> tuple[int, int]:
        return SETTINGS.reclaim.most_evictions(gpus)

    assert most(8) == (16, 32)
    assert most(512) == (256, 512)
    assert most(8000) == (4000, 8000)


def test_a_raised_limit_of_a_team_leaves_that_of_the_cluster_as_it_is() -> None:
    raised = ReclaimSettings(max_evictions_per_decision=1000)
    assert [raised.most_evictions(gpus) for gpus in (8, 512)] == [(1000, 32), (1000, 512)]


def test_by_default_a_gang_within_its_guarantee_gets_its_place_at_once_however_large() -> None:
    async def scenario(world: World) -> None:
        teams(world, nodes=12, red=40)
        await world.advance(30)
        job = add_job(world, "red", minReplicas=40, maxReplicas=40)
        await world.advance(20)
        assert len(pods_of(world, job)) == 40
        assert METRICS.waiting_for_limit._value.get() == 0

    run_scenario(scenario)


def test_by_default_a_guarantee_comes_back_from_one_gang_that_holds_the_whole_cluster() -> None:
    async def scenario(world: World) -> None:
        whole = teams(world, nodes=12, red=2)
        world.server.edit(kinds.JOBS, whole, {**whole["spec"], "minReplicas": 48})
        await world.advance(30)
        job = add_job(world, "red", minReplicas=2, maxReplicas=2)
        await world.advance(20)
        assert len(pods_of(world, job)) == 2

    run_scenario(scenario)


def test_gang_without_a_guarantee_that_needs_most_of_a_cluster_waits_for_a_person() -> None:
    async def scenario(world: World) -> None:
        whole = teams(world, nodes=12, red=0)
        world.server.edit(kinds.JOBS, whole, {**whole["spec"], "minReplicas": 48})
        spec = world.server.find(kinds.POLICIES, "", "red")["spec"]
        flavors = [{**spec["flavors"][0], "borrowing": {"limit": 100, "weight": 1}}]
        world.server.edit(kinds.POLICIES, world.server.find(kinds.POLICIES, "", "red"), {**spec, "flavors": flavors})
        await world.advance(30)
        job = add_job(world, "red", minReplicas=2, maxReplicas=2)
        await world.advance(200)
        assert len(pods_of(world, job)) == 0
        assert "48 pods of others would have to be evicted" in limited_by(world, job)[1]
        assert "reclaim.maxEvictionsPerDecision (24)" in limited_by(world, job)[1]

    run_scenario(scenario)


def test_small_preemptors_get_no_more_in_a_minute_than_a_large_one_and_others_are_served() -> None:
    async def scenario(world: World) -> None:
        teams(world, nodes=8, red=12, blue=3)
        await world.advance(30)
        evicted = Evicted(world)
        many = [add_job(world, "red", minReplicas=1, maxReplicas=1) for _ in range(12)]
        await world.advance(10)
        other = add_job(world, "blue", minReplicas=3, maxReplicas=3)
        await world.advance(20)
        assert len(pods_of(world, other)) == 3
        assert sum(len(pods_of(world, job)) for job in many) == 4
        await world.advance(150)
        assert all(pods_of(world, job) for job in many)
        assert evicted.most_in_a_minute() <= 4 + 3

    with with_limits(max_evictions_per_decision=4):
        run_scenario(scenario)


def test_a_team_that_comes_and_goes_does_not_keep_another_one_from_its_guarantee() -> None:
    async def scenario(world: World) -> None:
        teams(world, nodes=12, red=24, blue=20)
        await world.advance(30)
        last = add_job(world, "red", minReplicas=24, maxReplicas=24)
        for turn in range(6):
            await world.advance(10)
            world.server.remove(kinds.JOBS, last)
            for pod in pods_of(world, last):
                world.server.delete_pod(pod, grace=0)
            await world.advance(10)
            last = add_job(world, "red", minReplicas=24, maxReplicas=24)
            if turn == 4:
                gang = add_job(world, "blue", minReplicas=20, maxReplicas=20)
        await world.advance(10)
        assert len(pods_of(world, gang)) == 20

    run_scenario(scenario)


def test_small_jobs_of_its_own_team_do_not_keep_a_large_one_waiting() -> None:
    async def scenario(world: World) -> None:
        teams(world, nodes=12, red=44)
        await world.advance(30)
        small = [add_job(world, "red", minReplicas=1, maxReplicas=1)]
        await world.advance(10)
        large = add_job(world, "red", minReplicas=30, maxReplicas=30)
        for _ in range(5):
            await world.advance(20)
            small.append(add_job(world, "red", minReplicas=1, maxReplicas=1))
        await world.advance(10)
        assert len(pods_of(world, large)) == 30
        await world.advance(90)
        assert all(pods_of(world, job) for job in small)

    run_scenario(scenario)


def test_a_large_reclaim_whose_pods_go_one_after_the_other_is_not_stopped_halfway() -> None:
    async def scenario(world: World) -> None:
        whole = teams(world, nodes=12, red=40)
        world.server.edit(kinds.JOBS, whole, {**whole["spec"], "maxReplicas": 24})
        second = add_job(world, "green", minReplicas=1, maxReplicas=24)
        await world.advance(30)
        uid = second["metadata"]["uid"]
        world.operator.controller.reconciler.dispatcher.failed_writes.add(
            world.operator.controller.planner.decided.obs[uid].job,
            Unreachable("no answer"),
            world.clock.monotonic() + 20,
        )
        job = add_job(world, "red", minReplicas=40, maxReplicas=40)
        await world.advance(90)
        assert len(pods_of(world, job)) == 40

    run_scenario(scenario)


def test_a_report_that_raises_costs_no_preemptor_its_turn() -> None:
    async def scenario(world: World) -> None:
        teams(world, nodes=8, red=8, blue=20)
        await world.advance(30)
        gang = add_job(world, "red", minReplicas=8, maxReplicas=8)
        for _ in range(15):
            add_job(world, "blue", minReplicas=1, maxReplicas=1)
            await world.advance(10)
        assert len(pods_of(world, gang)) == 8

    broken = patch.object(ReclaimReporter, "report_futile", side_effect=MadeUpError("a report"))
    with with_limits(max_evictions_per_decision=8, max_evictions_per_minute=8), broken:
        run_scenario(scenario)


async def two_waiting(world: World, *, seconds: float) -> dict[str, Body]:
    """Two preemptors that began to wait for the cluster's limit of 10 in the same pass. For so many seconds no pod of
    the victim can be deleted, so the one of them that is served gets no pods.
    """
    victim = teams(world, nodes=8, gold=10, red=8, blue=5)
    await world.advance(30)
    add_job(world, "gold", minReplicas=10, maxReplicas=10)
    await world.settle()
    jobs = {name: add_job(world, name, minReplicas=pods, maxReplicas=pods) for name, pods in (("red", 8), ("blue", 5))}
    await world.settle()
    assert over_limit(world) == {"red", "blue"}
    controller = world.operator.controller
    job = controller.planner.decided.obs[victim["metadata"]["uid"]].job
    not_before = world.clock.monotonic() + seconds
    controller.reconciler.dispatcher.failed_writes.add(job, Unreachable("no answer"), not_before)
    return jobs


def over_limit(world: World) -> set[str]:
    """The teams whose preemptors a limit stops in the last pass."""
    decided = world.operator.controller.planner.decided
    return {one.preemptor.team for one in decided.allocation.over_eviction_limit}


@contextmanager
def watched_passes(world: World) -> Iterator[list[set[str]]]:
    """For each pass from now on: the teams whose preemptors a limit stops."""
    controller, seen = world.operator.controller, list[set[str]]()

    def watched() -> Any:
        wake_up = type(controller).run_pass(controller)
        seen.append(over_limit(world))
        return wake_up

    with patch.object(controller, "run_pass", watched):
        yield seen


def test_of_two_that_began_to_wait_at_once_one_keeps_its_turn_until_it_is_served() -> None:
    async def scenario(world: World) -> None:
        jobs = await two_waiting(world, seconds=90)
        with watched_passes(world) as seen:
            await world.advance(80)
        assert [teams for teams, _ in groupby(seen)] == [{"red", "blue"}, over_limit(world)]
        assert len(over_limit(world)) == 1
        await world.advance(200)
        assert [len(pods_of(world, job)) for job in jobs.values()] == [8, 5]

    with with_limits(max_evictions_per_decision=10, max_evictions_per_minute=10):
        run_scenario(scenario)


def test_evictions_reserved_for_a_preemptor_that_is_gone_keep_no_other_one_waiting() -> None:
    async def scenario(world: World) -> None:
        jobs = await two_waiting(world, seconds=90)
        await world.advance(65)
        [waiting] = over_limit(world)
        [served] = jobs.keys() - {waiting}
        world.server.edit(kinds.JOBS, jobs[served], {**jobs[served]["spec"], "suspend": True})
        with watched_passes(world) as seen:
            await world.settle()
            assert over_limit(world) == set()
            await world.advance(60)
        assert len(pods_of(world, jobs[waiting])) == jobs[waiting]["spec"]["minReplicas"]
        assert {waiting} in seen, "the first pass still reserves the evictions"

    with with_limits(max_evictions_per_decision=10, max_evictions_per_minute=10):
        run_scenario(scenario)
