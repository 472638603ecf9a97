"""A job that is to have as many pods as before keeps its own; whoever took their room gets the new places (149)."""

from __future__ import annotations

import pytest

from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.eviction_limits import EvictionLimits, PreemptorKey
from tests.plan.allocate.world import make_inputs, make_job, make_node, make_shape, make_team
from tests.plan.quota.cases import Case, came_out, on

TWO_GPUS = make_shape(2)
NODES = (make_node("n1", 4), make_node("n2", 8))
TEAMS = (make_team("a", 2), make_team("b"), make_team("c"))
OF_C = make_job("c", 1, 8, team="c", on=on("n2", 8))
"""Far beyond the share of its team, but two of its pods make room for one of two GPUs."""
JOBS = (make_job("a", team="a", shape=TWO_GPUS), make_job("b", 1, 2, team="b", on="n1 n1", shape=TWO_GPUS), OF_C)

CASES = {
    "a worker stays where its job would get another one elsewhere": Case(
        NODES, TEAMS, JOBS, {"a": "~m0@n2", "b": "m0 w0", "c": "m0 w0 w1 w2 w3 w4 -w6 -w5"}
    ),
    "a master stays where its job would start again elsewhere": Case(
        (make_node("n1", 3), NODES[1]),
        (make_team("a"), make_team("b")),
        (
            make_job("a", 1, 4, team="a", on="n1 n1"),
            make_job("x", team="b", on="n1"),
            make_job("y", 1, 2, team="b", on="n2 n2", shape=make_shape(4)),
        ),
        {"a": "m0 w0 ~w1@n2 ~w2@n2", "x": "m0", "y": "m0 -w0"},
    ),
    "it moves where the preemptor can go nowhere else": Case(
        (make_node("n1", 4, labels={"kind": "big"}), NODES[1]),
        TEAMS,
        (make_job("a", team="a", shape=make_shape(2, node_selector={"kind": "big"})), *JOBS[1:]),
        {"a": "~m0@n1", "b": "m0 ~w1@n2 -w0", "c": "m0 w0 w1 w2 w3 w4 -w6 -w5"},
    ),
}


@pytest.mark.parametrize("fact", CASES)
def test_move(fact):
    assert came_out(CASES[fact]) == CASES[fact].expected


def decided(**more):
    return allocate(make_inputs(NODES, JOBS, teams=TEAMS, **more))


def test_the_victims_of_a_moved_placement_are_victims_of_the_preemptor_that_gets_it():
    allocation = decided()
    assert allocation.evicted_for == {"c-w5": PreemptorKey("a", "a"), "c-w6": PreemptorKey("a", "a")}
    assert (allocation["c"].preemptors, allocation["a"].victim_jobs, allocation["b"].preemptors) == (
        {"a": "a/a"},
        {"c": "c/c"},
        {},
    )


def test_a_placement_moves_if_a_limit_allows_fewer_evictions_for_the_preemptor():
    allocation = decided(eviction_limits=EvictionLimits(per_team=1))
    assert allocation["b"].assignment.release == ("b-w0",)
    assert allocation["c"].assignment.release == ()
    assert {preemptor.team for preemptor in allocation.evicted_for.values()} == {"a"}


def test_a_preemptor_is_not_named_if_the_job_keeps_the_pods_that_were_preempted_for_it():
    nodes = (make_node("n0", 4), make_node("n1", 8))
    teams = (make_team("a", 2), make_team("b", 4), make_team("c", 4))
    gone = make_job("gone", sizes=(2, 4), team="c", shape=make_shape(4), on="n0 n1", age=3)
    shrinks = make_job("shrinks", 1, team="c", priority=1, on="n1 n1", age=1)
    """Is beyond its largest size. All of it is preempted first; then it keeps its master."""
    preemptor = make_job("preemptor", 1, 3, team="a", priority=1, shape=TWO_GPUS, age=4)
    allocation = allocate(make_inputs(nodes, (gone, shrinks, preemptor), teams=teams))
    assert allocation["shrinks"].assignment.release == ("shrinks-w0",)
    assert (allocation["shrinks"].preemptors, allocation["shrinks"].reclaimed) == ({}, False)
    assert allocation["gone"].preemptors == {"preemptor": "a/preemptor"}
    assert allocation.evictions == {"gone": {"preemptor": "a/preemptor"}}
