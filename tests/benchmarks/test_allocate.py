"""The cluster that the allocation is measured on is what it is said to be, and its figures are computed rightly."""

from __future__ import annotations

import pytest

from benchmarks.allocate.measure import exponent
from benchmarks.allocate.objects import GPU
from benchmarks.allocate.scenario import Scenario
from benchmarks.allocate.world import World

SMALL = Scenario(nodes=8, jobs=16, teams=2, pods=480)


def test_the_cluster_has_the_numbers_of_its_scenario_and_no_gpu_is_free():
    world = World(SMALL)
    inputs = world.inputs()
    assert (len(inputs.nodes), len(inputs.jobs), len(world.stores.pods)) == (8, 16, 480)
    of_others = sum(node.used.requests[GPU] for node in inputs.nodes)
    assert of_others + sum(len(job.members) for job in inputs.jobs) == SMALL.gpus
    assert {team.name for team in inputs.teams.listed if team.has_policy} == {"team-0", "team-1"}


def test_every_job_wants_more_and_nothing_is_to_be_done_until_something_changes():
    world = World(SMALL)
    allocation = world.decide()
    assert all(allocation.assignment(uid).replicas < 16 for uid in allocation)
    assert not world.carry_out(allocation)


def test_each_kind_of_change_is_seen_and_comes_to_rest():
    world = World(SMALL)
    world.settle()
    changes, seen = world.changes(), []
    for _ in range(6):
        before = world.inputs()
        what = next(changes)
        if world.inputs() is not before:
            seen.append(what)
        world.settle()
    assert seen == ["pod deleted", "foreign pod ended", "job edited"] * 2


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_the_exponent_is_the_power_of_the_size_that_the_time_grows_with(power):
    assert exponent({part: 40 * part**power for part in (0.25, 0.5, 1.0)}) == pytest.approx(power)


def test_a_part_of_the_cluster_has_as_many_pods_per_node_and_gpus_per_job():
    half = Scenario().scaled(0.5)
    assert (half.gpus, half.nodes, half.jobs, half.teams, half.pods) == (2000, 250, 500, 10, 15_000)
