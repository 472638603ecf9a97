"""Complaints about other schedulers, where policies or namespaces change while jobs run; none holds here."""

from __future__ import annotations

from dataclasses import replace

from elastic_operator.plan.allocation.allocate import allocate
from tests.plan.allocate.world import make_inputs, make_job, make_node, make_team, outcome
from tests.plan.quota.cases import history, on, sizes

GUARANTEED = (make_team("a", 4), make_team("b", 4))
N8 = (make_node("n1", 8),)


def test_a_policy_is_edited_while_jobs_run():
    jobs = [make_job("a", 1, 8, team="a", on=on("n1", 4)), make_job("b", 1, 8, team="b", on=on("n1", 4))]
    edited = (make_team("a", 6), make_team("b", 2))
    releases, end = history(make_inputs(N8, jobs, teams=edited))
    assert releases[0] == ["b-w1", "b-w2"]
    assert not any(releases[1:])
    assert sizes(end) == {"a": 6, "b": 2}


def test_a_policy_is_deleted_while_jobs_run():
    job = make_job("a", 1, 8, team="a", on=on("n1", 8))
    assert outcome(N8, [job], teams=()) == {"a": "m0 w0 w1 w2 w3 w4 w5 w6"}
    releases, end = history(make_inputs(N8, [job, make_job("b", 4, team="b")], teams=GUARANTEED[1:]))
    assert sum(map(len, releases)) == 4
    assert sizes(end) == {"a": 4, "b": 4}


def test_jobs_that_are_not_preemptible_keep_their_pods_when_their_policy_is_deleted():
    job = make_job("a", 1, 8, team="a", on=on("n1", 5), preemptible=False)
    came_out = outcome(N8, [job, make_job("b", 4, team="b")], teams=GUARANTEED[1:])
    assert came_out == {"a": "m0 w0 w1 w2 w3", "b": ""}


def test_a_policy_is_moved_to_another_parent_while_jobs_run():
    jobs = [make_job("a", 1, 8, team="a", on=on("n1", 6)), make_job("b", 2, team="b")]
    parents = [make_team("p", 6), make_team("q", 2, borrow=0)]
    before = [*parents, make_team("a", parent="p"), make_team("b", 2, parent="q")]
    assert outcome(N8, jobs, teams=before)["b"] == "+m0@n1 +w0@n1"
    after = [*parents, make_team("a", parent="q"), make_team("b", 2, parent="q")]
    assert outcome(N8, jobs, teams=after)["a"].count("-") >= 2


def test_a_namespace_is_relabelled_while_its_jobs_run():
    job = make_job("x", 1, 8, team="moving", on=on("n1", 6))
    other = make_job("b", 4, team="b")
    before = make_inputs(N8, [job, other], teams=(make_team("a", 8), make_team("b", 4)), covered={"moving": "a"})
    assert not allocate(before)["x"].assignment.release
    after = replace(before, teams=replace(before.teams, covered={"moving": "b", "b": "b"}))
    assert allocate(after)["x"].assignment.release
    releases, end = history(after)
    assert not any(releases[1:])
    assert sizes(end)["b"] == 4
