"""Complaints about other schedulers, each shown not to hold here; those of the live part are tested there."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.requirements import PodShape
from tests.plan.allocate.world import (
    GPU,
    NOW,
    carried_out,
    make_inputs,
    make_job,
    make_node,
    make_shape,
    make_team,
    notation,
    outcome,
)
from tests.plan.quota.cases import PASSES, history, make_foreign_pod, on, released, sizes

GUARANTEED = (make_team("a", 4), make_team("b", 4))
BORROWER = make_job("b", 1, 8, team="b", on=on("n1", 8))
N8 = (make_node("n1", 8),)


@pytest.mark.parametrize("teams", [GUARANTEED, (make_team("a"), make_team("b")), ()])
def test_endless_mutual_eviction_because_surplus_that_waits_counts_as_need(teams):
    waiting = make_job("a", 1, 8, team="a")
    releases, end = history(make_inputs(N8, [waiting, BORROWER], teams=teams))
    assert sum(map(len, releases)) == 4
    assert not any(releases[1:])
    assert sizes(end) == {"a": 4, "b": 4}


@pytest.mark.parametrize("low", [1, 3, 4])
def test_endless_mutual_eviction_among_three_teams_that_all_want_everything(low):
    teams = [make_team(name, 2) for name in "abc"]
    jobs = [make_job(name, low, 8, team=name) for name in "ab"]
    third = make_job("c", 1, 8, team="c", on=on("n1", 8))
    releases, _ = history(make_inputs(N8, [*jobs, third], teams=teams))
    assert not any(releases[PASSES // 2 :])


VICTIMS = (make_job("x", team="b", holds=True), make_job("y", team="b", holds=True))


@pytest.mark.parametrize("team", [make_team("a", 2), make_team("a", weight=9)])
@pytest.mark.parametrize("preemptor", [make_job("a", 2, team="a"), make_job("a", team="a", shape=make_shape(2))])
def test_two_victims_leave_at_different_times_and_the_first_is_admitted_again(team, preemptor):
    jobs, teams = (preemptor, *VICTIMS), (team, make_team("b"))
    one_gone = outcome([make_node("n1", 2, leaving=1, by="b")], jobs, teams=teams)
    assert (one_gone["x"], one_gone["y"]) == ("", "")
    both_gone = outcome([make_node("n1", 2)], jobs, teams=teams)
    assert both_gone["a"].startswith("+m0@n1")
    assert (both_gone["x"], both_gone["y"]) == ("", "")


def test_one_pod_needed_and_ten_evicted():
    nodes = [make_node(f"n{i}", 4) for i in range(5)]
    gang = make_job("gang", 10, team="b", on=" ".join([on("n0", 4), on("n1", 4), on("n2", 2)]))
    elastic = make_job("elastic", 1, 10, team="b", on=" ".join([on("n2", 2), on("n3", 4), on("n4", 4)]), age=99)
    teams = (make_team("a", 1), make_team("b"))
    assert released(nodes, [make_job("a", team="a"), gang, elastic], teams=teams) == ["elastic-w8"]


@pytest.mark.parametrize(
    ("pods", "gpus", "low"), [(48, 1, 1), (24, 2, 1), (12, 4, 1), (48, 1, 8), (12, 4, 8), (6, 8, 8)]
)
def test_48_gpus_wanted_and_376_evicted(pods, gpus, low):
    nodes = [make_node(f"n{i}", 8) for i in range(47)]
    jobs = [make_job(f"b{i}", low, 8, team="b", on=on(f"n{i}", 8)) for i in range(47)]
    preemptor = make_job("a", pods, team="a", shape=make_shape(gpus))
    teams = (make_team("a", 48), make_team("b"))
    count = len(released(nodes, [preemptor, *jobs], teams=teams))
    assert count == 48


@pytest.mark.parametrize(
    "shape",
    [
        PodShape({GPU: 1, "cpu": 60_000, "pods": 1}, gpus=1),
        PodShape({GPU: 1, "cpu": 1_000, "memory": 1 << 30, "pods": 1}, gpus=1),
        PodShape({GPU: 1, "rdma/hca": 1, "pods": 1}, gpus=1),
        make_shape(node_selector={"disk": "fast"}),
    ],
    ids=["cpu", "memory", "extended resource", "node selector"],
)
def test_evicted_although_the_preemptor_cannot_be_placed(shape):
    nodes = [make_node("n1", 8, used_cpu=10)]
    preemptor = make_job("a", team="a", shape=shape)
    pod = make_foreign_pod(shape=shape)
    assert not released(nodes, [preemptor, BORROWER], teams=GUARANTEED, foreign_pods=(pod,))


@pytest.mark.parametrize("why", ["its volume is bound to no node yet", "it has required anti-affinity"])
def test_evicted_for_a_pod_whose_place_nobody_can_plan(why):
    assert not released(N8, [BORROWER], teams=GUARANTEED, foreign_pods=(make_foreign_pod(unplannable=why),))


def test_quota_fits_and_no_node_fits():
    nodes = [make_node(f"n{i}", 4, used=1) for i in range(4)]
    elastic = make_job("b", 1, 8, team="b", on=" ".join(f"n{i} n{i}" for i in range(4)))
    large = make_job("a", team="a", shape=make_shape(4))
    assert not released(nodes, [large, elastic], teams=GUARANTEED)


def test_a_pod_stuck_terminating_counts_as_free():
    preemptor = make_job("a", team="a")
    assert outcome([make_node("n1", 1, leaving=1, by="b")], [preemptor], teams=GUARANTEED) == {"a": "~m0@n1"}
    assert outcome([make_node("n1", 1, used=1, by="b")], [preemptor], teams=GUARANTEED) == {"a": ""}


def test_quota_is_released_while_pods_still_run():
    teams = (make_team("a", 2, borrow=0),)
    stopped = make_job("x", 2, team="a", on="n1 n1", wants_pods=False)
    came_out = outcome(N8, [stopped, make_job("y", 2, team="a")], teams=teams)
    assert came_out == {"x": "-w0 -m0", "y": "~m0@n1 ~w0@n1"}
    still_there = [make_node("n1", 8, leaving=1, by="a")]
    assert outcome(still_there, [make_job("y", 2, team="a")], teams=teams) == {"y": "+m0@n1 ~w0@n1"}


def test_a_freed_gpu_is_taken_by_an_unrelated_pod_and_the_gang_stays_below_its_minimum():
    gang = make_job("a", 4, team="a")
    inputs = make_inputs(N8, [gang, BORROWER], teams=GUARANTEED)
    after = carried_out(inputs, allocate(inputs))
    after = replace(after, nodes=(make_node("n1", 8, used=1, by="c"),), jobs=(gang, after.jobs[1]))
    again = allocate(after)
    assert notation(again["a"]) == ""
    raised = replace(after, teams=replace(after.teams, listed=(make_team("a", 4), make_team("b", 3))))
    again = allocate(raised)
    assert again["b"].assignment.release == ("b-w2",)
    assert sizes(carried_out(raised, again)) == {"a": 4, "b": 3}


def test_what_a_gang_waits_for_is_given_to_nobody_else_meanwhile():
    nodes = [make_node("n1", 8, leaving=2, by="b")]
    jobs = [make_job("a", 4, team="a"), replace(BORROWER, members=BORROWER.members[:4]), make_job("c", team="c")]
    assert outcome(nodes, jobs, teams=GUARANTEED) == {"a": "+m0@n1 +w0@n1 ~w1@n1 ~w2@n1", "b": "m0 w0 w1 w2", "c": ""}


def test_a_victim_is_made_again_under_its_name_and_evicted_again_and_again():
    inputs = make_inputs(N8, [make_job("a", 4, team="a"), BORROWER], teams=GUARANTEED)
    for _ in range(PASSES):
        granted = allocate(inputs)
        assert not granted["b"].assignment.create
        inputs = carried_out(inputs, granted)


def test_a_whole_job_is_made_again_and_evicted_again_and_again():
    gang = make_job("b", 5, team="b", on=on("n1", 5))
    releases, end = history(make_inputs(N8, [make_job("a", 4, team="a"), gang], teams=GUARANTEED))
    assert [len(gone) for gone in releases] == [5, *[0] * (PASSES - 1)]
    assert sizes(end) == {"a": 4, "b": 0}


def test_finished_pods_block_replacements():
    job = make_job("a", 3, team="a", on="n1 - n1", used_indices=frozenset({0, 1}))
    assert outcome(N8, [job], teams=GUARANTEED) == {"a": "m0 w1 +w2@n1"}


def test_growth_restarts_the_leader():
    for high in range(2, 9):
        job = make_job("a", 1, high, team="a", on="n1")
        granted = allocate(make_inputs(N8, [job], teams=GUARANTEED))["a"]
        assert granted.assignment.keep == ("a-m0",)
        assert {slot.role for slot in granted.assignment.create} == {"worker"}


def test_a_scale_down_leaves_waiting_jobs_asleep():
    shrunk = make_job("x", 1, 2, team="a", on=on("n1", 8))
    came_out = outcome(N8, [shrunk, make_job("y", 6, team="a")], teams=(make_team("a", 8),))
    assert came_out["x"] == "m0 w0 -w6 -w5 -w4 -w3 -w2 -w1"
    assert came_out["y"].count("~") == 6


def test_a_raised_limit_leaves_waiting_jobs_asleep():
    jobs = [make_job("x", 2, team="a", on="n1 n1"), make_job("y", 2, team="a")]
    assert outcome(N8, jobs, teams=[make_team("a", 2, borrow=0)])["y"] == ""
    assert outcome(N8, jobs, teams=[make_team("a", 4, borrow=0)])["y"] == "+m0@n1 +w0@n1"


@pytest.mark.parametrize("low", [1, 4])
def test_the_cluster_shrank_below_the_guarantees(low):
    nodes = [make_node("n1", 4)]
    survivor = make_job("a", low, 4, team="a", on=on("n1", 4))
    hit = make_job("b", low, 4, team="b", holds=True, age=99)
    releases, end = history(make_inputs(nodes, [survivor, hit], teams=GUARANTEED))
    assert not any(releases)
    assert sizes(end) == {"a": 4, "b": 0}


@pytest.mark.parametrize("closed", [{"cordoned": True}, {"ready": False}])
def test_a_node_is_cordoned_and_everybody_evicted_though_nothing_is_gained(closed):
    nodes = [make_node("n1", 8, **closed), make_node("n2", 2)]
    jobs = [make_job("a", 4, team="a"), BORROWER, make_job("c", 2, team="c", on="n2 n2")]
    releases, _ = history(make_inputs(nodes, jobs, teams=GUARANTEED))
    assert not any(releases)


def test_equal_timestamps():
    jobs = [make_job(name, 3, team=name) for name in "abc"]
    teams = [make_team(name) for name in "abc"]
    found = {tuple(sorted(outcome(N8, some, teams=teams).items())) for some in permutations(jobs)}
    assert len(found) == 1
    releases, _ = history(make_inputs(N8, jobs, teams=teams))
    assert not any(releases)


def test_a_leader_is_killed_when_only_some_victims_are_deleted():
    gang = make_job("a", 4, team="a")
    first = allocate(make_inputs(N8, [gang, BORROWER], teams=GUARANTEED))
    deleted, rest = first["b"].assignment.release[:2], first["b"].assignment.release[2:]
    found = replace(BORROWER, members=tuple(m for m in BORROWER.members if m.uid not in deleted))
    successor = allocate(make_inputs([make_node("n1", 8, leaving=2, by="b")], [gang, found], teams=GUARANTEED))
    assert successor["b"].assignment.release == rest
    assert successor["a"] == first["a"]


def test_a_leader_is_killed_between_delete_and_bind():
    inputs = make_inputs(N8, [make_job("a", 4, team="a"), BORROWER], teams=GUARANTEED)
    leaving = carried_out(inputs, allocate(inputs), gone=False, only_ready=True)
    gone = replace(leaving, nodes=N8)
    for found, sign in ((leaving, "~"), (gone, "+")):
        successor = allocate(found)
        assert notation(successor["a"]) == " ".join(f"{sign}{pod}@n1" for pod in ("m0", "w0", "w1", "w2"))
        assert not successor["b"].assignment.release
        assert not successor["b"].assignment.create


def test_a_job_that_could_never_run_holds_nothing_of_others_for_ever():
    never = make_job("x", 9, team="a", waiting_since=NOW - 9999)
    assert outcome(N8, [never, make_job("y", 2, team="a")], teams=GUARANTEED)["y"] == "+m0@n1 +w0@n1"
