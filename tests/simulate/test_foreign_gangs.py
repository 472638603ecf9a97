"""Gangs of foreign pods on the whole loop: the GPUs that go are those that the gang asks for (144, 145)."""

from __future__ import annotations

import pytest

from elastic_operator.metrics.counters import PassReason
from tests.simulate import server as kinds
from tests.simulate.facts import node_of
from tests.simulate.server import Body
from tests.simulate.test_eviction_limits import Evicted
from tests.simulate.test_quarantine import add_job, add_policy, pods_of, run_scenario
from tests.simulate.world import World

NODES, GPUS = 12, 4


async def full_cluster(world: World, *, guaranteed: int) -> None:
    """A team `red` with that guarantee, all of which jobs of the other team have borrowed."""
    for _ in range(NODES):
        world.add_node(GPUS, "a")
    add_policy(world, "red", guaranteed=guaranteed, limit=0)
    add_policy(world, "green", guaranteed=NODES * GPUS - guaranteed, limit=100)
    jobs = [add_job(world, "green", minReplicas=1, maxReplicas=2 * GPUS) for _ in range(NODES // 2)]
    await world.advance(60)
    assert sum(len(pods_of(world, job)) for job in jobs) == NODES * GPUS


async def make_gang(world: World, pods: int, *, job: str = "gang", indexed: bool = True) -> list[Body]:
    """The pods of a Job, each of which asks for a whole node; they come one by one, less than a second apart."""
    made = []
    for _ in range(pods):
        made.append(world.add_foreign("red", gpus=GPUS, pool="a", job=job, indexed=indexed))
        if world.rng.random() < 0.4:
            world.clock.passed += world.rng.random() * 0.9
            world.machines.step()
            await world.run_pass()
    return made


def bound(world: World, pods: list[Body]) -> int:
    """How many of them have a node."""
    now = (world.server.find(kinds.PODS, pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pods)
    return sum(bool(pod and node_of(pod)) for pod in now)


@pytest.mark.parametrize("seed", range(20))
def test_a_gang_gets_all_of_its_nodes_and_not_one_gpu_too_many_goes(seed: int) -> None:
    async def scenario(world: World) -> None:
        size = world.rng.randint(2, NODES - 2)
        await full_cluster(world, guaranteed=size * GPUS)
        evicted = Evicted(world)
        gang = await make_gang(world, size)
        await world.advance(600)
        assert bound(world, gang) == size
        assert len(evicted.times) == size * GPUS

    run_scenario(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_no_pod_is_evicted_for_a_gang_that_is_only_partly_within_the_guarantee(seed: int) -> None:
    async def scenario(world: World) -> None:
        size = world.rng.randint(3, NODES - 2)
        await full_cluster(world, guaranteed=(size - 1) * GPUS)
        evicted = Evicted(world)
        gang = await make_gang(world, size)
        await world.advance(600)
        assert (bound(world, gang), len(evicted.times)) == (0, 0)
        notes = [event["note"] for event in world.server.all(kinds.EVENTS) if event["reason"] == "NoRoomForGang"]
        assert [f"The {size} waiting pods of this pod's gang" in note for note in notes] == [True]

    run_scenario(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_of_a_job_whose_pods_are_all_alike_as_many_are_served_as_are_within_the_guarantee(seed: int) -> None:
    async def scenario(world: World) -> None:
        size = world.rng.randint(3, NODES - 2)
        await full_cluster(world, guaranteed=(size - 1) * GPUS)
        evicted = Evicted(world)
        gang = await make_gang(world, size, indexed=False)
        await world.advance(600)
        assert (bound(world, gang), len(evicted.times)) == (size - 1, (size - 1) * GPUS)

    run_scenario(scenario, seed=seed)


def test_pods_of_a_job_beyond_the_guarantee_of_their_team_cause_no_passes_while_they_wait() -> None:
    async def scenario(world: World) -> None:
        await full_cluster(world, guaranteed=0)
        gang = await make_gang(world, 3, indexed=False)
        await world.advance(600)
        assert bound(world, gang) == 0
        assert world.operator.controller.run_pass().reason is not PassReason.FOREIGN_PODS

    run_scenario(scenario)


def test_no_pod_is_evicted_for_a_job_of_equal_pods_until_kube_scheduler_has_tried_each() -> None:
    async def scenario(world: World) -> None:
        size = NODES - 2
        await full_cluster(world, guaranteed=size * GPUS)
        evicted = Evicted(world)
        gang = [world.add_foreign("red", gpus=GPUS, pool="a", job="gang", indexed=False) for _ in range(size)]
        world.machines.unseen.update(pod["metadata"]["uid"] for pod in gang[4:])
        await world.settle()
        await world.advance(5)
        assert len(evicted.times) == 0
        world.machines.unseen.clear()
        await world.advance(60)
        assert (bound(world, gang), len(evicted.times)) == (size, size * GPUS)

    run_scenario(scenario)


def test_a_job_is_served_without_pods_that_kube_scheduler_does_not_try() -> None:
    async def scenario(world: World) -> None:
        await full_cluster(world, guaranteed=4 * GPUS)
        evicted = Evicted(world)
        gang = [world.add_foreign("red", gpus=GPUS, pool="a", job="gang", indexed=False) for _ in range(4)]
        world.machines.unseen.add(gang[0]["metadata"]["uid"])
        await world.settle()
        assert len(evicted.times) == 0
        await world.advance(60)
        assert (bound(world, gang), len(evicted.times)) == (3, 3 * GPUS)

    run_scenario(scenario)


def test_pods_of_a_job_that_makes_one_each_second_have_what_their_team_is_guaranteed() -> None:
    async def scenario(world: World) -> None:
        await full_cluster(world, guaranteed=2 * GPUS)
        evicted, made = Evicted(world), []
        for _ in range(60):
            made.append(world.add_foreign("red", gpus=1, pool="a", job="sweep", indexed=False))
            await world.advance(1)
        await world.advance(60)
        assert (bound(world, made), len(evicted.times)) == (2 * GPUS, 2 * GPUS)

    run_scenario(scenario)


@pytest.mark.parametrize("job", ["", "of-one"], ids=["on its own", "alone of its Job"])
def test_pod_that_waited_without_room_gets_freed_room_before_a_job_grows_into_it(job: str) -> None:
    async def scenario(world: World) -> None:
        for _ in range(2):
            world.add_node(GPUS, "a")
        add_policy(world, "red", guaranteed=GPUS, limit=0)
        add_policy(world, "green", guaranteed=GPUS, limit=100)
        plain = [world.add_foreign("green", gpus=GPUS, pool="a") for _ in range(2)]
        await world.advance(30)
        pod = world.add_foreign("red", gpus=GPUS, pool="a", job=job)
        await world.advance(100)
        grows = add_job(world, "green", minReplicas=1, maxReplicas=2 * GPUS)
        evicted = Evicted(world)
        for one in plain:
            world.server.delete_pod(one, grace=0)
        await world.advance(60)
        assert (bound(world, [pod]), len(pods_of(world, grows)), len(evicted.times)) == (1, GPUS, 0)

    run_scenario(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_of_two_gangs_that_do_not_both_fit_one_is_served_whole(seed: int) -> None:
    async def scenario(world: World) -> None:
        await full_cluster(world, guaranteed=8 * GPUS)
        evicted = Evicted(world)
        first, second = await make_gang(world, 5, job="first"), await make_gang(world, 5, job="second")
        await world.advance(600)
        assert sorted([bound(world, first), bound(world, second)]) == [0, 5]
        assert len(evicted.times) == 5 * GPUS

    run_scenario(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(10))
def test_for_plain_pods_that_come_while_older_ones_wait_as_many_gpus_go_as_they_ask_for(seed: int) -> None:
    async def scenario(world: World) -> None:
        guaranteed, asked, made = 6 * GPUS, 0, list[Body]()
        await full_cluster(world, guaranteed=guaranteed)
        evicted = Evicted(world)
        for _ in range(world.rng.randint(2, 5)):
            for _ in range(world.rng.randint(1, 4)):
                gpus = min(world.rng.choice((1, 2, GPUS)), guaranteed - asked)
                if gpus:
                    asked += gpus
                    made.append(world.add_foreign("red", gpus=gpus, pool="a"))
            await world.advance(world.rng.choice((0.3, 1, 2.5, 7)))
        await world.advance(400)
        assert (bound(world, made), len(evicted.times)) == (len(made), asked)

    run_scenario(scenario, seed=seed)


def test_a_place_is_kept_until_the_evicted_pods_are_removed_however_long_that_takes() -> None:
    """Kubelets are slow: the grace and the time of the reservation are over before one pod has gone."""

    async def scenario(world: World) -> None:
        await full_cluster(world, guaranteed=2 * GPUS)
        evicted = Evicted(world)
        world.machines.let_go = False
        gang = await make_gang(world, 2)
        await world.advance(40)
        assert (bound(world, gang), len(evicted.times)) == (0, 2 * GPUS)
        world.machines.let_go = True
        await world.settle()
        await world.advance(600)
        assert (bound(world, gang), len(evicted.times)) == (2, 2 * GPUS)
        assert not [event for event in world.server.all(kinds.EVENTS) if event["reason"] == "ReservationExpired"]

    run_scenario(scenario)
