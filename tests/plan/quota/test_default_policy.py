"""Namespaces that no policy covers are one team to those that one covers, and teams of their own to each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.change_times import ChangeTimes
from elastic_operator.plan.facts.team import NO_POLICY, Quota
from elastic_operator.settings import Settings
from tests.plan.allocate.world import NOW, make_inputs, make_job, make_node, make_shape, make_team
from tests.plan.provision.places import asking
from tests.plan.quota.cases import history, on, sizes

N8 = (make_node("n1", 8),)
TEAM = make_team("a")


def inputs(*jobs, teams=(TEAM,), nodes=N8, **default_policy):
    """Namespaces other than the teams' own are without a policy."""
    settings = Settings.model_validate({"defaultPolicy": default_policy}).allocation
    covered = {team.name: team.name for team in teams}
    every = (*teams, *settings.default_parents)
    return make_inputs(nodes, jobs, teams=every, covered=covered, default_team=settings.default_team)


def at_rest(*jobs, **more):
    """How many pods each job has in the end."""
    return sizes(history(inputs(*jobs, **more))[1])


def in_namespaces(names, **more):
    return [make_job(name, 1, 8, team=name, **more) for name in names]


@pytest.mark.parametrize("names", ["x", "xy", "wxyz"])
def test_more_namespaces_get_no_more_of_what_a_teams_policy_gives_it(names):
    ended = at_rest(make_job("a", 1, 8, team="a"), *in_namespaces(names))
    assert (ended["a"], sum(ended[name] for name in names)) == (4, 4)


def test_what_new_namespaces_hold_together_is_given_back_to_a_team():
    holders = [make_job(name, 1, 8, team=name, on=on("n1", 2)) for name in "wxyz"]
    assert at_rest(make_job("a", 1, 8, team="a"), *holders) == {"a": 4, "w": 1, "x": 1, "y": 1, "z": 1}


def test_where_each_namespace_is_a_team_of_its_own_each_has_as_much_as_a_policys_team():
    ended = at_rest(make_job("a", 1, 8, team="a"), *in_namespaces("xyz"), perNamespace=True)
    assert ended == {"a": 2, "x": 2, "y": 2, "z": 2}


@pytest.mark.parametrize("per_namespace", [False, True])
def test_among_themselves_namespaces_share_fairly_whoever_came_first_and_whatever_its_priority(per_namespace):
    first = make_job("x", 1, 8, team="x", on=on("n1", 8), priority=1000)
    assert at_rest(first, *in_namespaces("y"), teams=(), perNamespace=per_namespace) == {"x": 4, "y": 4}


@pytest.mark.parametrize(("per_namespace", "most"), [(False, 3), (True, 6)])
def test_the_limit_holds_for_all_of_them_together(per_namespace, most):
    ended = at_rest(*in_namespaces("xy"), borrowing={"limit": 3}, perNamespace=per_namespace)
    assert sum(ended.values()) == most


@pytest.mark.parametrize(
    ("per_namespace", "who"),
    [(False, "the default policy (of all namespaces without one)"), (True, "namespace x")],
)
def test_whose_limit_is_reached_is_told_with_what_to_do(per_namespace, who):
    job = make_job("x", 1, 8, team="x", on=on("n1", 3))
    message = allocate(inputs(job, borrowing={"limit": 3}, perNamespace=per_namespace))["x"].message
    assert f"; {who} may use 3 GPUs and uses 3. No GPUQuotaPolicy covers namespace 'x'. Ask an administrator" in message


def test_what_plain_pods_of_other_namespaces_hold_of_the_limit_is_told():
    nodes = (make_node("n1", 8, used=4, by="evil"),)
    message = allocate(inputs(make_job("v", team="v"), nodes=nodes, borrowing={"limit": 4}))["v"].message
    assert "may use 4 GPUs and uses 4, 4 of them by pods that belong to no job. No GPUQuotaPolicy" in message


def test_of_all_on_the_way_that_one_is_named_whose_share_would_be_passed():
    """`v` uses nothing, and two GPUs are its share; the four of all without a policy are in use."""
    running = [make_job("a", 4, 8, team="a", on=on("n1", 4)), make_job("w", 4, team="w", on=on("n1", 4))]
    message = allocate(inputs(*running, make_job("v", 4, team="v")))["v"].message
    assert "; the default policy (of all namespaces without one) uses 4; its fair share is 4 (0 guaranteed)." in message


def test_weight_and_tier_are_those_of_all_together_and_the_most_of_a_job_is_each_jobs():
    ended = at_rest(make_job("a", 1, 8, team="a"), *in_namespaces("xy"), borrowing={"weight": 3}, perJob={"maxGPUs": 2})
    assert ended == {"a": 4, "x": 2, "y": 2}
    ended = at_rest(make_job("a", 1, 8, team="a"), *in_namespaces("xy"), borrowing={"weight": 3})
    assert ended == {"a": 2, "x": 3, "y": 3}
    assert at_rest(make_job("a", 1, 8, team="a"), *in_namespaces("xy"), priority=1) == {"a": 0, "x": 4, "y": 4}


@pytest.mark.parametrize(("names", "run"), [("vwxyz", 3), ("z", 1)])
def test_jobs_larger_than_their_namespaces_share_get_what_is_the_share_of_all_together(names, run):
    """24 of 48 GPUs are theirs, four or five of each of five: none of their jobs, of eight, fits into that."""
    nodes = tuple(make_node(f"n{i}", 8) for i in range(1, 7))
    first = make_job("a", 1, 48, team="a", on=" ".join(on(node.name, 8) for node in nodes))
    ended = at_rest(first, *[make_job(name, 8, 8, team=name) for name in names], nodes=nodes)
    assert (ended["a"], sum(ended[name] == 8 for name in names)) == (48 - 8 * run, run)


def test_a_namespace_beyond_its_share_preempts_no_pods_of_another_one():
    """Six of eight GPUs are theirs, three of each."""
    jobs = [make_job("a", 2, 2, team="a", on=on("n1", 2)), make_job("x", 1, 6, team="x", on=on("n1", 6))]
    assert at_rest(*jobs, make_job("y", 4, 4, team="y")) == {"a": 2, "x": 6, "y": 0}
    assert at_rest(*jobs, make_job("y", 3, 3, team="y")) == {"a": 2, "x": 3, "y": 3}


def test_victims_are_of_the_namespace_with_the_highest_share_value():
    """`y` has the younger job, and is within its share: what is taken from it, it takes from `x` in the same pass."""
    holders = [make_job("x", 1, 6, team="x", on=on("n1", 6)), make_job("y", 1, 2, team="y", on=on("n1", 2), age=-9)]
    first, *_ = history(inputs(make_job("a", 1, 3, team="a"), *holders))[0]
    assert first == ["x-w2", "x-w3", "x-w4"]


def test_what_one_namespace_asks_new_nodes_for_keeps_no_other_from_its_share_of_the_limit():
    """The limit is four: a job of `x` waits for a node that is large enough, and two GPUs are the share of `y`."""
    waits = asking("x", 1, waits="m0", shape=make_shape(4), team="x", age=9)
    nodes = (make_node("n1", 2), make_node("n2", 2))
    granted = allocate(inputs(waits, make_job("y", 2, team="y"), nodes=nodes, teams=(), borrowing={"limit": 4}))
    assert {uid: grant.assignment.replicas for uid, grant in granted.items()} == {"x": 0, "y": 2}


def test_a_guarantee_is_taken_back_from_them_as_ever():
    holders = [make_job(name, 1, 4, team=name, on=on("n1", 4)) for name in "xy"]
    owner = make_team("a", quotas={"default": Quota(guaranteed=6)})
    assert at_rest(make_job("a", 6, 6, team="a"), *holders, teams=(owner,)) == {"a": 6, "x": 1, "y": 1}


def test_times_of_the_default_policy_count_in_namespaces_without_a_policy():
    """It has none yet; a rule that reads a team's times must not read those of policies only."""
    in_turns = replace(NO_POLICY, min_runtime_seconds=60, quantum_seconds=100)
    running = make_job("running", 8, team="x", on=on("n1", 8), running_since=NOW - 50)
    waiting = [make_job("new", 8, team="x", age=9), make_job("late", 8, team="x", age=5, waiting_since=NOW - 500)]
    alone = make_inputs(N8, [running], default_team=in_turns)
    assert [ChangeTimes().next(alone), ChangeTimes().next(replace(alone, now=NOW + 10))] == [NOW + 10, NOW + 50]
    for team, first in ((NO_POLICY, "new"), (in_turns, "late")):
        granted = allocate(make_inputs(N8, waiting, default_team=team))
        assert [job.name for job in waiting if granted.assignment(job.uid).create] == [first]
