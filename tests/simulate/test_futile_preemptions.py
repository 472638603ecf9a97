"""Nobody is evicted for a preemptor that cannot use the room (139)."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from unittest.mock import patch

import pytest

from elastic_api.status import ConditionType, SizeReason
from elastic_operator.loop.reclaim import dry_run_answers, dry_runs
from elastic_worker.contract import LABEL_INCARNATION
from tests.kit.requests import Request
from tests.simulate import server as kinds
from tests.simulate.api import RefusedError
from tests.simulate.facts import gpus_of, is_master, node_of, reservation_in
from tests.simulate.server import Body
from tests.simulate.test_eviction_limits import Evicted, teams
from tests.simulate.test_quarantine import add_job, pods_of, run_scenario
from tests.simulate.world import METRICS, World

HOUR = 3600.0


def never_placed(world: World, namespace: str, *, gpus: int) -> Body:
    """A plain pod that kube-scheduler places nowhere, for a reason that the operator does not know."""
    pod = world.add_foreign(namespace, gpus=gpus, pool="a")
    world.machines.never.add(pod["metadata"]["uid"])
    return pod


def test_pod_that_the_scheduler_places_nowhere_causes_evictions_on_three_nodes_and_then_rests() -> None:
    async def scenario(world: World) -> None:
        teams(world, nodes=20, red=4)
        await world.advance(30)
        evicted = Evicted(world)
        never_placed(world, "red", gpus=2)
        await world.advance(HOUR)
        assert len(evicted.times) == 3 * 2
        await world.advance(3 * HOUR)
        assert len(evicted.times) <= 5 * 2
        notes = [event["note"] for event in world.server.all(kinds.EVENTS) if event["reason"] == "ReservationExpired"]
        assert any("PodScheduled has kube-scheduler's reason" in note for note in notes)

    run_scenario(scenario)


def test_a_pod_that_rests_is_not_tried_before_its_time_by_the_next_leader_either() -> None:
    async def scenario(world: World) -> None:
        teams(world, nodes=6, red=4)
        await world.advance(30)
        evicted = Evicted(world)
        never_placed(world, "red", gpus=1)
        await world.advance(600)
        for _ in range(3):
            world._replace_operator()
            await world.advance(600)
        assert len(evicted.times) == 3

    run_scenario(scenario)


def test_a_pod_that_rests_keeps_no_room_and_gets_what_becomes_free_by_itself() -> None:
    async def scenario(world: World) -> None:
        job = teams(world, nodes=4, red=4)
        await world.advance(30)
        pod = never_placed(world, "red", gpus=1)
        await world.advance(600)

        def now() -> Body:
            return next(p for p in world.server.all(kinds.PODS) if p["metadata"]["uid"] == pod["metadata"]["uid"])

        assert not reservation_in(now())
        world.machines.never.clear()
        world.server.edit(
            kinds.JOBS,
            world.server.find(kinds.JOBS, "green", job["metadata"]["name"]) or {},
            {**job["spec"], "maxReplicas": 15},
        )
        await world.advance(60)
        assert node_of(now())

    run_scenario(scenario)


def add_stranger(world: World, team: str) -> Body:
    """A plain pod of one GPU."""
    return world.add_foreign(team, gpus=1, pool="a")


def add_small_job(world: World, team: str) -> Body:
    """A job of two pods."""
    return add_job(world, team, minReplicas=2, maxReplicas=2)


@pytest.mark.parametrize("add", [add_small_job, add_stranger])
def test_no_pod_is_evicted_while_the_stores_are_not_fresh(add: Callable[[World, str], Body]) -> None:
    async def scenario(world: World) -> None:
        job = teams(world, red=4)
        await world.advance(30)
        evicted, world.operator.fresh = Evicted(world), False
        add(world, "red")
        await world.advance(300)
        assert evicted.times == []
        assert len(pods_of(world, job)) == 16
        assert not [pod for pod in world.server.all(kinds.PODS) if reservation_in(pod)]
        [now] = [one for one in world.server.all(kinds.JOBS) if one["metadata"]["uid"] == job["metadata"]["uid"]]
        assert now["status"]["targetReplicas"] == 16
        world.operator.fresh = True
        await world.advance(60)
        assert len(evicted.times) in (1, 2)

    run_scenario(scenario)


def test_a_job_that_ends_while_the_stores_are_not_fresh_ends_though_others_are_to_get_its_pods() -> None:
    async def scenario(world: World) -> None:
        job = teams(world, red=4)
        await world.advance(30)
        world.operator.fresh = False
        add_small_job(world, "red")
        await world.advance(30)
        master = next(pod for pod in pods_of(world, job) if is_master(pod))
        world.machines.end(master, 0)
        await world.advance(30)
        [now] = [one for one in world.server.all(kinds.JOBS) if one["metadata"]["uid"] == job["metadata"]["uid"]]
        assert "completionTime" in now["status"]

    run_scenario(scenario)


def refuse(
    world: World, namespace: str, message: str, *, gpus: int | None = None, dry_runs: bool | None = None
) -> list[str]:
    """The API server refuses pods there: all, or those beyond so many GPUs; only dry runs, all but those, or both.

    Returns what it was asked by dry runs from now on.
    """
    asked: list[str] = []

    def admit(request: Request, plural: str, body: Body) -> None:
        if plural != kinds.PODS or body["metadata"]["namespace"] != namespace:
            return
        if "dryRun" in request.query:
            asked.append(body["metadata"]["name"])
        if dry_runs is not None and dry_runs is not ("dryRun" in request.query):
            return
        used = [pod for pod in world.server.all(kinds.PODS) if pod["metadata"]["namespace"] == namespace]
        if gpus is None or sum(map(gpus_of, [*used, body])) > gpus:
            raise RefusedError(403, "Forbidden", message)

    world.api.admission.append(admit)
    return asked


QUOTA = "pods is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: 3, limited: 3"


@pytest.mark.parametrize(
    ("message", "gpus"),
    [('violates PodSecurity "restricted:latest": hostPath', None), (QUOTA, 0), (QUOTA, 3)],
    ids=["pod-security", "quota-of-none", "quota-of-less-than-the-minimum"],
)
def test_no_pod_is_evicted_for_a_job_whose_pods_are_refused_and_the_job_says_why(
    message: str, gpus: int | None
) -> None:
    async def scenario(world: World) -> None:
        owner = teams(world, red=8)
        await world.advance(30)
        refuse(world, "red", message, gpus=gpus)
        evicted = Evicted(world)
        job = add_job(world, "red", minReplicas=4, maxReplicas=4)
        counted = METRICS.evictions._value.get()
        await world.advance(HOUR)
        assert evicted.times == []
        assert METRICS.evictions._value.get() == counted
        assert len(pods_of(world, owner)) == 16
        notes = [event["note"] for event in world.server.all(kinds.EVENTS) if event["reason"] == "ScaleUpBlocked"]
        assert any(message[:30] in note for note in notes)
        world.api.admission.clear()
        await world.advance(600)
        assert len(pods_of(world, job)) == 4
        assert len(evicted.times) == 4

    run_scenario(scenario)


def test_no_pod_is_evicted_for_a_job_whose_incarnation_a_webhook_changes() -> None:
    async def scenario(world: World) -> None:
        def admit(_request: Request, plural: str, body: Body) -> None:
            if plural == kinds.PODS and body["metadata"]["namespace"] == "red":
                body["metadata"]["labels"] = {**body["metadata"]["labels"], LABEL_INCARNATION: "mine"}

        teams(world, red=8)
        await world.advance(30)
        world.api.admission.append(admit)
        evicted = Evicted(world)
        add_job(world, "red", minReplicas=4, maxReplicas=4)
        await world.advance(HOUR)
        assert evicted.times == []
        notes = [event["note"] for event in world.server.all(kinds.EVENTS) if event["reason"] == "ScaleUpBlocked"]
        assert any(LABEL_INCARNATION in note for note in notes)

    run_scenario(scenario)


def test_what_goes_in_its_own_namespace_makes_room_under_a_quota() -> None:
    async def scenario(world: World) -> None:
        teams(world, nodes=2, red=4)
        await world.advance(30)
        weak = add_job(world, "red", minReplicas=4, maxReplicas=4, priorityClassName="low")
        await world.advance(60)
        assert len(pods_of(world, weak)) == 4
        refuse(world, "red", QUOTA, gpus=4)
        strong = add_job(world, "red", minReplicas=4, maxReplicas=4, priorityClassName="high")
        await world.advance(60)
        assert len(pods_of(world, strong)) == 4

    run_scenario(scenario)


def test_a_job_whose_template_names_a_missing_class_reclaims_its_guarantee() -> None:
    """Its pods are made without that class (97), so without it they are tried, too."""

    async def scenario(world: World) -> None:
        teams(world, nodes=2, red=4)
        await world.advance(30)
        job = add_job(world, "red", minReplicas=4, maxReplicas=4)
        template = deepcopy(job["spec"]["template"])
        template["spec"]["priorityClassName"] = "missing"
        world.server.edit(kinds.JOBS, job, {**job["spec"], "template": template})
        await world.advance(60)
        assert len(pods_of(world, job)) == 4

    run_scenario(scenario)


def test_a_full_quota_on_the_number_of_pods_does_not_matter_if_leaving_pods_fill_it() -> None:
    async def scenario(world: World) -> None:
        teams(world, nodes=1, red=4)
        await world.advance(30)
        weak = add_job(world, "red", minReplicas=4, maxReplicas=4, priorityClassName="low")
        await world.advance(60)
        assert len(pods_of(world, weak)) == 4
        refuse(world, "red", "exceeded quota: few, requested: pods=1, used: pods=4, limited: pods=4", gpus=4)
        strong = add_job(world, "red", minReplicas=4, maxReplicas=4, priorityClassName="high")
        await world.advance(120)
        assert len(pods_of(world, strong)) == 4

    run_scenario(scenario)


def test_pods_with_idle_room_are_created_though_a_quota_refuses_those_that_need_evictions() -> None:
    async def scenario(world: World) -> None:
        green = teams(world, nodes=4, red=8)
        world.server.edit(kinds.JOBS, green, {**green["spec"], "maxReplicas": 14})
        await world.advance(30)
        refuse(world, "red", QUOTA, gpus=2)
        evicted = Evicted(world)
        job = add_job(world, "red", minReplicas=1, maxReplicas=8)
        await world.advance(20)
        assert len(pods_of(world, job)) == 2
        await world.advance(600)
        assert len(pods_of(world, job)) == 2
        assert evicted.times == []

    run_scenario(scenario)


def test_new_idle_room_is_used_at_once_though_a_quota_refuses_pods_that_need_evictions() -> None:
    async def scenario(world: World) -> None:
        green = teams(world, nodes=4, red=8)
        world.server.edit(kinds.JOBS, green, {**green["spec"], "maxReplicas": 14})
        await world.advance(30)
        refuse(world, "red", QUOTA, gpus=3)
        evicted = Evicted(world)
        job = add_job(world, "red", minReplicas=1, maxReplicas=8)
        await world.advance(700)
        assert len(pods_of(world, job)) == 2
        notes = [event["note"] for event in world.server.all(kinds.EVENTS) if event["reason"] == "ScaleUpBlocked"]
        assert any("No pods are evicted for the job's growth" in note and "exceeded quota" in note for note in notes)
        assert evicted.times == []
        green = world.server.find(kinds.JOBS, "green", green["metadata"]["name"]) or {}
        world.server.edit(kinds.JOBS, green, {**green["spec"], "maxReplicas": 13})
        await world.advance(15)
        assert len(pods_of(world, job)) == 3

    run_scenario(scenario)


def test_of_many_small_preemptors_only_those_within_a_resource_quota_evict_pods() -> None:
    async def scenario(world: World) -> None:
        owner = teams(world, nodes=4, red=12)
        await world.advance(30)
        refuse(world, "red", QUOTA, gpus=2)
        evicted = Evicted(world)
        many = [add_job(world, "red", minReplicas=1, maxReplicas=1) for _ in range(12)]
        await world.advance(300)
        assert sum(len(pods_of(world, job)) for job in many) == 2
        assert len(evicted.times) == 2
        assert len(pods_of(world, owner)) == 14

    run_scenario(scenario)


def test_of_more_preemptors_than_dry_runs_within_the_life_of_an_answer_each_gets_its_guarantee() -> None:
    async def scenario(world: World) -> None:
        owner = teams(world, nodes=6, red=14, blue=1)
        await world.advance(30)
        many = [add_job(world, "red", minReplicas=1, maxReplicas=1) for _ in range(14)]
        other = add_job(world, "blue", minReplicas=1, maxReplicas=1)
        for _ in range(20):
            await world.advance(1)
        assert len(pods_of(world, other)) == 1
        for _ in range(20):
            await world.advance(1)
        assert all(pods_of(world, job) for job in many)
        [now] = [one for one in world.server.all(kinds.JOBS) if one["metadata"]["uid"] == owner["metadata"]["uid"]]
        assert now["status"]["resizes"] <= 4

    with patch.object(dry_run_answers, "PASSED_SECONDS", 3.0):
        run_scenario(scenario)


def limit_of(world: World, job: Body) -> str:
    """Why the job is not bigger, by its status."""
    now = world.server.find(kinds.JOBS, job["metadata"]["namespace"], job["metadata"]["name"]) or {}
    return next(str(one["reason"]) for one in now["status"]["conditions"] if one["type"] == ConditionType.FULL_SIZE)


def test_a_job_with_a_deferred_release_gets_lost_pods_again() -> None:
    async def scenario(world: World) -> None:
        green = teams(world, nodes=2, red=4)
        world.server.edit(kinds.JOBS, green, {**green["spec"], "maxReplicas": 6})
        await world.advance(60)
        assert len(pods_of(world, green)) == 6
        world.add_job("red", gpus=4, pool="a", minReplicas=1, maxReplicas=1)
        await world.advance(30)
        assert limit_of(world, green) == SizeReason.AT_MAXIMUM
        going = {uid: who for uid, who in world.operator.allocation.evicted_for.items() if who.team == "red"}
        node = next(node_of(pod) for pod in pods_of(world, green) if pod["metadata"]["uid"] in going)
        others = [pod for pod in pods_of(world, green) if node_of(pod) != node]
        gone = next(pod for pod in others if not is_master(pod))
        world.server.delete_pod(gone, grace=0)
        await world.advance(60)
        assert going
        assert len(pods_of(world, green)) == 6
        assert gone["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in pods_of(world, green)}
        now = world.server.find(kinds.JOBS, "green", green["metadata"]["name"]) or {}
        world.server.edit(kinds.JOBS, now, {**now["spec"], "maxReplicas": 8})
        await world.settle()
        await world.advance(5)
        assert limit_of(world, green) != SizeReason.AT_MAXIMUM

    with patch.object(dry_runs.DryRuns, "_may_ask", lambda *_: False):
        run_scenario(scenario)


def test_pending_pod_does_not_wait_long_for_answers_about_another_preemptor() -> None:
    async def scenario(world: World) -> None:
        green = teams(world, nodes=2, red=4, blue=1)
        await world.advance(60)
        pod, job = add_stranger(world, "blue"), add_job(world, "red", minReplicas=4, maxReplicas=4)
        await world.settle()
        await world.advance(6)
        assert node_of(world.server.find(kinds.PODS, "blue", pod["metadata"]["name"]) or {})
        assert not pods_of(world, job)
        assert len(pods_of(world, green)) == 7

    with patch.object(dry_runs.DryRuns, "_may_ask", lambda *_: False):
        run_scenario(scenario)


def test_three_rejections_after_dry_runs_stop_evictions_for_the_job() -> None:
    async def scenario(world: World) -> None:
        owner = teams(world, nodes=4, red=4)
        await world.advance(30)
        refuse(world, "red", 'admission webhook "of.somebody" denied the request: no', dry_runs=False)
        evicted = Evicted(world)
        job = add_job(world, "red", minReplicas=1, maxReplicas=1)
        await world.advance(HOUR)
        assert len(evicted.times) == 3
        await world.advance(2 * HOUR)
        assert len(evicted.times) <= 5
        world.api.admission.clear()
        now = world.server.find(kinds.JOBS, "red", job["metadata"]["name"]) or {}
        world.server.edit(kinds.JOBS, now, {**now["spec"], "maxRestarts": 7})
        await world.advance(330)
        assert len(pods_of(world, job)) == 1
        assert len(pods_of(world, owner)) == 15

    run_scenario(scenario)


def test_without_answers_no_pod_is_evicted_and_later_all_get_their_guarantee() -> None:
    async def scenario(world: World) -> None:
        teams(world, nodes=4, red=12)
        await world.advance(30)
        asked = refuse(world, "red", "", gpus=100)

        def busy(request: Request, plural: str, body: Body) -> None:
            if plural == kinds.PODS and "dryRun" in request.query and body["metadata"]["namespace"] == "red":
                raise RefusedError(429, "TooManyRequests", "please try again later")

        world.api.admission.append(busy)
        evicted = Evicted(world)
        jobs = [add_job(world, "red", minReplicas=1, maxReplicas=1) for _ in range(12)]
        await world.advance(600)
        assert evicted.times == []
        assert len(asked) <= 2 * (600 / 30 + 6)
        world.api.admission.remove(busy)
        await world.advance(60)
        assert all(pods_of(world, job) for job in jobs)

    run_scenario(scenario)


@pytest.mark.parametrize("placed", [0, 1], ids=["all-of-its-pods", "all-but-the-first"])
def test_job_that_the_scheduler_places_nowhere_causes_evictions_three_times_and_then_rests(placed: int) -> None:
    async def scenario(world: World) -> None:
        teams(world, nodes=4, red=4)
        await world.advance(30)
        evicted = Evicted(world)
        job = add_job(world, "red", minReplicas=1, maxReplicas=1 + placed)

        def never(plural: str, old: Body | None, new: Body | None) -> None:
            made = new if plural == kinds.PODS and old is None else None
            if made is not None and made["metadata"]["namespace"] == "red" and not (placed and is_master(made)):
                world.machines.never.add(made["metadata"]["uid"])

        world.server.listeners.append(never)
        await world.advance(HOUR)
        assert len(evicted.times) == 3 + placed
        await world.advance(3 * HOUR)
        assert len(evicted.times) <= 5 + placed
        assert len(pods_of(world, job)) >= placed

    run_scenario(scenario)
