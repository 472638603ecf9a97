"""Gangs among teams: minima all at once or not at all, turns, and what is held for those who wait long."""

from __future__ import annotations

import pytest

from elastic_operator.plan.allocation.allocate import Allocator
from tests.plan.allocate.world import NOW, make_inputs, make_job, make_node, make_shape, make_team
from tests.plan.quota.cases import Case, came_out, on

N8 = (make_node("n1", 8),)
TWO4 = (make_node("n1", 4), make_node("n2", 4))
TURNS = (make_team("a", quantum_seconds=100),)
TWO_GPUS = make_shape(2)
ONE_TEAM = (make_team("a"),)


def runs(name, for_seconds, *, pods=8, team="a", **more):
    """A job of exactly so many pods that has run so long."""
    return make_job(name, pods, team=team, on=on("n1", pods), running_since=NOW - for_seconds, age=500, **more)


def waits(name, for_seconds, *, pods=8, team="a", **more):
    """A job of exactly so many pods that has waited so long."""
    return make_job(name, pods, team=team, waiting_since=NOW - for_seconds, **more)


HOLDER = runs("h", 50, pods=4)

GANGS = {
    "no pod is evicted for a part of a minimum": Case(
        N8,
        (make_team("a", 6), make_team("b", 4)),
        (make_job("a", 6, team="a"), make_job("b", 1, 8, team="b", on=on("n1", 8))),
        {"a": "", "b": "m0 w0 w1 w2 w3 w4 w5 w6"},
    ),
    "no pod is evicted for a part of a minimum whose other part fits on no node": Case(
        (make_node("n1", 4), make_node("n2", 4, used=3)),
        (make_team("a", 6), make_team("b")),
        (
            make_job("a", 3, team="a", shape=TWO_GPUS),
            make_job("b", 1, 4, team="b", on=on("n1", 4)),
        ),
        {"a": 0, "b": 4},
    ),
    "a minimum takes from two teams what both borrow": Case(
        N8,
        (make_team("a", 4), make_team("b", 2), make_team("c", 2)),
        (
            make_job("a", 4, team="a"),
            make_job("b", 1, 4, team="b", on=on("n1", 4)),
            make_job("c", 1, 4, team="c", on=on("n1", 4)),
        ),
        {"a": 4, "b": 2, "c": 2},
    ),
    "a minimum takes what is free first and then what is borrowed": Case(
        TWO4,
        (make_team("a", 4), make_team("b")),
        (make_job("a", 4, team="a"), make_job("b", 1, 6, team="b", on="n1 n1 n1 n1 n2 n2")),
        {"a": "+m0@n2 +w0@n2 ~w1@n2 ~w2@n2", "b": "m0 w0 w1 w2 -w4 -w3"},
    ),
    "a gang of large pods clears as many nodes as it needs": Case(
        TWO4,
        (make_team("a", 8), make_team("b")),
        (
            make_job("a", 2, team="a", shape=make_shape(4)),
            make_job("b", 1, 8, team="b", on="n1 n1 n1 n1 n2 n2 n2 n2"),
        ),
        {"a": "~m0@n2 ~w0@n1", "b": "-w6 -w5 -w4 -w3 -w2 -w1 -w0 -m0"},
    ),
    "a minimum of a lower priority starts if that of a higher one is beyond the quota": Case(
        N8,
        (make_team("a", 4, borrow=0),),
        (make_job("x", 6, team="a", priority=1), make_job("y", 4, team="a")),
        {"x": 0, "y": 4},
    ),
    "the higher priority of a team gets the guarantee": Case(
        N8,
        (make_team("a", 4, borrow=0),),
        (make_job("x", 3, team="a", age=9), make_job("y", 3, team="a", priority=1)),
        {"x": 0, "y": 3},
    ),
    "minima of a team come before the growth of its jobs of higher priority": Case(
        N8,
        (make_team("a", 4, borrow=0),),
        (make_job("x", 1, 4, team="a", priority=9), make_job("y", 3, team="a")),
        {"x": 1, "y": 3},
    ),
    "two minima that a guarantee holds one of: the older starts": Case(
        N8,
        (make_team("a", 4), make_team("b", 4)),
        (
            make_job("x", 3, team="a", age=1),
            make_job("y", 3, team="a", age=2),
            make_job("b", 1, 8, team="b", on=on("n1", 8)),
        ),
        {"x": "", "y": "~m0@n1 ~w0@n1 ~w1@n1", "b": 5},
    ),
    "growth by allowed sizes takes a whole step": Case(
        N8,
        (make_team("a", 3), make_team("b")),
        (
            make_job("a", sizes=(2, 4), team="a", on="n1 n1"),
            make_job("b", 1, 6, team="b", on=on("n1", 6)),
        ),
        {"a": 4, "b": 4},
    ),
    "a step beyond the fair share is not taken in part": Case(
        N8,
        (make_team("a"), make_team("b")),
        (
            make_job("a", sizes=(3, 6), team="a", on="n1 n1 n1"),
            make_job("b", 1, 5, team="b", on=on("n1", 5)),
        ),
        {"a": "m0 w0 w1", "b": "m0 w0 w1 w2 w3"},
    ),
    "a job that lost its master gets one from a borrower, within the guarantee": Case(
        (make_node("n1", 4),),
        (make_team("a", 2), make_team("b")),
        (make_job("a", 2, team="a", on="- n1"), make_job("b", 1, 3, team="b", on=on("n1", 3))),
        {"a": "w0 ~m0@n1", "b": "m0 w0 -w1"},
    ),
    "no job is broken up for one of its team that loses the room to another team's guarantee": Case(
        (make_node("n1", 3),),
        (make_team("a", 6), make_team("b", 1)),
        (
            make_job("a", sizes=(1, 3, 5), team="a"),
            make_job("low", team="b", on="n1"),
            make_job("high", 2, team="b", priority=10),
        ),
        {"a": "+m0@n1", "low": "m0", "high": ""},
    ),
    "no job loses a worker on a closed node for one that takes its room and loses it again": Case(
        (
            make_node("n1", 2, cpu=3),
            make_node("n2", 1, used=1, by="c"),
            make_node("n3", 1, used=1, by="d"),
            make_node("n4", 2),
            make_node("n5", 0, cordoned=True),
        ),
        (),
        (
            make_job("a", team="a", on="n4"),
            make_job("b", team="b", on="n4"),
            make_job("c", team="c", shape=TWO_GPUS, age=5),
            make_job("d", team="d"),
            make_job("x", 1, 2, team="x", shape=make_shape(cpu=3), on="n1 n5", age=9),
        ),
        {"a": "m0", "b": "m0", "c": "", "d": "", "x": "m0 w0"},
    ),
    "a job that loses its room in a pass and wins it back keeps its master, and gets no second one": Case(
        (make_node("n1", 1, cpu=5), make_node("n2", 8, cpu=8), make_node("n3", 1, cpu=5)),
        (make_team("a", 5, weight=2, min_runtime_seconds=600),),
        (
            make_job("x", team="x", shape=make_shape(cpu=2), age=9),
            make_job("y", team="x"),
            make_job("young", 1, 2, team="a", on="n2", age=1, running_since=NOW - 60),
            make_job("again", 3, 4, team="a", on="n2", age=7),
            make_job("old", 3, 4, team="a", on="n1", shape=make_shape(cpu=3), age=11, running_since=NOW - 250),
        ),
        {"x": 0, "y": 1, "young": 1, "again": "m0 +w0@n2 +w1@n2", "old": 3},
    ),
}

TURN = {
    "a turn that is over goes to the job that waits": Case(
        N8, TURNS, (runs("x", 100), waits("y", 50)), {"x": 0, "y": 8}
    ),
    "a turn that is not over goes on": Case(N8, TURNS, (runs("x", 99), waits("y", 50)), {"x": 8, "y": 0}),
    "without turns nobody of the same priority gives way": Case(
        N8, (make_team("a"),), (runs("x", 9999), waits("y", 50)), {"x": 8, "y": 0}
    ),
    "a turn that is over goes on while nobody waits": Case(N8, TURNS, (runs("x", 9999),), {"x": 8}),
    "whoever waits longest has the next turn, not the oldest": Case(
        N8, TURNS, (runs("x", 100), waits("y", 50), waits("z", 60, age=-9)), {"x": 0, "y": 0, "z": 8}
    ),
    "of two that wait equally long the lower uid has the next turn": Case(
        N8, TURNS, (runs("x", 100), waits("z", 50), waits("y", 50)), {"x": 0, "y": 8, "z": 0}
    ),
    "a job of lower priority has no turn": Case(
        N8, TURNS, (runs("x", 9999, priority=1), waits("y", 9999)), {"x": 8, "y": 0}
    ),
    "nobody gives a turn to a job that does not fit even then": Case(
        N8, TURNS, (runs("x", 100), waits("y", 50, pods=9)), {"x": 8, "y": 0}
    ),
    "only as many give way as must": Case(
        N8,
        TURNS,
        (runs("x", 200, pods=4), runs("y", 100, pods=4), waits("z", 50, pods=4)),
        {"x": 4, "y": 0, "z": 4},
    ),
    "turns of one team change nothing for another": Case(
        N8,
        (*TURNS, make_team("b")),
        (runs("x", 9999, pods=8, team="b"), waits("y", 50, pods=5)),
        {"x": 8, "y": 0},
    ),
    "a job that is not preemptible keeps its turn": Case(
        N8,
        (make_team("a", 8, quantum_seconds=100),),
        (runs("x", 200, preemptible=False), waits("y", 50)),
        {"x": 8, "y": 0},
    ),
}

STARVING = {
    "what is free is held for a job that has waited too long": Case(
        N8, ONE_TEAM, (HOLDER, waits("x", 600), waits("y", 10, pods=2)), {"h": 4, "x": 0, "y": 0}
    ),
    "only the first of those who wait long holds what is free": Case(
        N8,
        ONE_TEAM,
        (HOLDER, waits("x", 700, pods=6, age=9), waits("y", 600, pods=7, age=8), waits("z", 10, pods=2)),
        {"h": 4, "x": 0, "y": 0, "z": 0},
    ),
    "before that it is passed over": Case(
        N8, ONE_TEAM, (HOLDER, waits("x", 599), waits("y", 10, pods=2)), {"h": 4, "x": 0, "y": 2}
    ),
    "what is held is not grown into": Case(
        N8, ONE_TEAM, (HOLDER, waits("x", 600), make_job("y", 1, 4, team="a", on="n1 n1")), {"h": 4, "x": 0, "y": 2}
    ),
    "before that it is grown into": Case(
        N8, ONE_TEAM, (HOLDER, waits("x", 599), make_job("y", 1, 4, team="a", on="n1 n1")), {"h": 4, "x": 0, "y": 4}
    ),
    "nothing is taken from who runs for one that has waited too long": Case(
        N8, ONE_TEAM, (HOLDER, waits("x", 9999)), {"h": "m0 w0 w1 w2", "x": ""}
    ),
    "what the first cannot use goes to others": Case(
        N8,
        ONE_TEAM,
        (HOLDER, waits("x", 600, pods=9), waits("y", 10, pods=2)),
        {"h": 4, "x": 0, "y": 2},
    ),
    "what is only held gives nobody a right to what runs within the guarantee": Case(
        (make_node("n1", 4), make_node("n2", 4, cpu=2)),
        (make_team("a", 4), make_team("b", 2)),
        (
            make_job("h", 3, team="a", on="n1 n1 n1"),
            waits("x", 600, pods=3, shape=make_shape(2)),
            make_job("y", 1, team="b", shape=make_shape(2, cpu=10)),
        ),
        {"h": "m0 w0 w1", "x": "", "y": ""},
    ),
    "a job of higher priority starts in what is held": Case(
        N8, ONE_TEAM, (HOLDER, waits("x", 600), waits("y", 10, pods=2, priority=1)), {"h": 4, "x": 0, "y": 2}
    ),
    "nothing is held for what the team may not use": Case(
        N8,
        (make_team("a", 4, borrow=0), make_team("b")),
        (waits("x", 600, pods=6), make_job("b", 1, 8, team="b")),
        {"x": 0, "b": 8},
    ),
}

ALL = {**GANGS, **TURN, **STARVING}


@pytest.mark.parametrize("fact", ALL)
def test_gang(fact):
    assert came_out(ALL[fact]) == ALL[fact].expected


def test_for_whom_jobs_go_in_vain_although_the_pass_was_decided_as_often_as_it_may_be_is_said(monkeypatch):
    case = GANGS["no job is broken up for one of its team that loses the room to another team's guarantee"]
    inputs, allocator = make_inputs(case.nodes, case.jobs, teams=case.teams), Allocator()
    assert not allocator.allocate(inputs).still_futile
    monkeypatch.setattr("elastic_operator.plan.allocation.allocate._MAX_SERVINGS", 1)
    assert allocator.allocate(inputs).still_futile == {"high"}
