"""Nobody is evicted for a taker that cannot use the room (139)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulate import server as kinds
from tests.simulate.api import RefusedError
from tests.simulate.facts import gpus_of, is_master, node_of, reservation_in
from tests.simulate.server import Body
from tests.simulate.test_breaker import Evicted, teams
from tests.simulate.test_bulkheads import add_job, lived, pods_of
from tests.simulate.world import World

HOUR = 3600.0


def never_placed(world: World, namespace: str, *, gpus: int) -> Body:
    """A plain pod that kube-scheduler places nowhere, for a reason that the operator does not know."""
    pod = world.add_foreign(namespace, gpus=gpus, pool="a")
    world.machines.never.add(pod["metadata"]["uid"])
    return pod


def test_for_a_pod_that_the_scheduler_places_nowhere_pods_go_from_three_nodes_and_then_it_rests() -> None:
    async def story(world: World) -> None:
        teams(world, nodes=20, red=4)
        await world.advance(30)
        evicted = Evicted(world)
        never_placed(world, "red", gpus=2)
        await world.advance(HOUR)
        assert len(evicted.times) == 3 * 2
        await world.advance(3 * HOUR)
        assert len(evicted.times) <= 5 * 2
        told = [event["note"] for event in world.server.all(kinds.EVENTS) if event["reason"] == "ReservationExpired"]
        assert any("kube-scheduler has a reason of its own" in note for note in told)

    lived(story)


def test_a_pod_that_rests_is_not_tried_before_its_time_by_the_next_leader_either() -> None:
    async def story(world: World) -> None:
        teams(world, nodes=6, red=4)
        await world.advance(30)
        evicted = Evicted(world)
        never_placed(world, "red", gpus=1)
        await world.advance(600)
        for _ in range(3):
            world._replace_operator()
            await world.advance(600)
        assert len(evicted.times) == 3

    lived(story)


def test_a_pod_that_rests_keeps_no_room_and_gets_what_becomes_free_by_itself() -> None:
    async def story(world: World) -> None:
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

    lived(story)


def add_stranger(world: World, team: str) -> Body:
    """A plain pod of one GPU."""
    return world.add_foreign(team, gpus=1, pool="a")


def add_small_job(world: World, team: str) -> Body:
    """A job of two pods."""
    return add_job(world, team, minReplicas=2, maxReplicas=2)


@pytest.mark.parametrize("add", [add_small_job, add_stranger])
def test_nobody_goes_while_the_stores_are_not_fresh(add: Callable[[World, str], Body]) -> None:
    async def story(world: World) -> None:
        job = teams(world, red=4)
        await world.advance(30)
        evicted, fresh = Evicted(world), False
        world.operator.controller.dispatcher.fresh = lambda: fresh
        add(world, "red")
        await world.advance(300)
        assert evicted.times == []
        assert len(pods_of(world, job)) == 16
        assert not [pod for pod in world.server.all(kinds.PODS) if reservation_in(pod)]
        [now] = [one for one in world.server.all(kinds.JOBS) if one["metadata"]["uid"] == job["metadata"]["uid"]]
        assert now["status"]["targetReplicas"] == 16
        fresh = True
        await world.advance(60)
        assert len(evicted.times) in (1, 2)

    lived(story)


def test_a_job_that_ends_while_the_stores_are_not_fresh_ends_though_others_are_to_get_its_pods() -> None:
    async def story(world: World) -> None:
        job = teams(world, red=4)
        await world.advance(30)
        world.operator.controller.dispatcher.fresh = lambda: False
        add_small_job(world, "red")
        await world.advance(30)
        master = next(pod for pod in pods_of(world, job) if is_master(pod))
        world.machines.end(master, 0)
        await world.advance(30)
        [now] = [one for one in world.server.all(kinds.JOBS) if one["metadata"]["uid"] == job["metadata"]["uid"]]
        assert "completionTime" in now["status"]

    lived(story)


def refuse(world: World, namespace: str, message: str, *, gpus: int | None = None) -> None:
    """The API server refuses pods there: all, or those beyond so many GPUs."""

    def admit(_request: object, plural: str, body: Body) -> None:
        if plural != kinds.PODS or body["metadata"]["namespace"] != namespace:
            return
        used = [pod for pod in world.server.all(kinds.PODS) if pod["metadata"]["namespace"] == namespace]
        if gpus is None or sum(map(gpus_of, [*used, body])) > gpus:
            raise RefusedError(403, "Forbidden", message)

    world.api.admission.append(admit)


QUOTA = "pods is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: 3, limited: 3"


@pytest.mark.parametrize(
    ("message", "gpus"),
    [('violates PodSecurity "restricted:latest": hostPath', None), (QUOTA, 0), (QUOTA, 3)],
    ids=["pod-security", "quota-of-none", "quota-of-less-than-the-minimum"],
)
def test_for_a_job_whose_pods_the_api_server_refuses_nobody_goes_and_it_says_why(
    message: str, gpus: int | None
) -> None:
    async def story(world: World) -> None:
        owner = teams(world, red=8)
        await world.advance(30)
        refuse(world, "red", message, gpus=gpus)
        evicted = Evicted(world)
        job = add_job(world, "red", minReplicas=4, maxReplicas=4)
        await world.advance(HOUR)
        assert evicted.times == []
        assert len(pods_of(world, owner)) == 16
        told = [event["note"] for event in world.server.all(kinds.EVENTS) if event["reason"] == "ScaleUpBlocked"]
        assert any(message[:30] in note for note in told)
        world.api.admission.clear()
        await world.advance(600)
        assert len(pods_of(world, job)) == 4
        assert len(evicted.times) == 4

    lived(story)
