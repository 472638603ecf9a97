"""What teams may use: guarantees, weights, tiers, limits, lending, and the limits of single jobs."""

from __future__ import annotations

import pytest

from tests.plan.allocate.world import make_job, make_node, make_shape, make_team
from tests.plan.quota.cases import Case, came_out, on

N8 = (make_node("n1", 8),)
BOTH = (make_job("a", 1, 8, team="a"), make_job("b", 1, 8, team="b"))
ONLY_A = BOTH[:1]
ONLY_B = BOTH[1:]

DIVISION = {
    "idle GPUs go by weight": Case(N8, (make_team("a", weight=3), make_team("b")), BOTH, {"a": 6, "b": 2}),
    "guarantees go first and the rest by weight": Case(N8, (make_team("a", 4), make_team("b")), BOTH, {"a": 6, "b": 2}),
    "a higher tier takes all idle GPUs that it wants": Case(
        N8, (make_team("a", priority=1), make_team("b")), BOTH, {"a": 8, "b": 0}
    ),
    "a higher tier takes nothing of another's guarantee": Case(
        N8, (make_team("a", priority=1), make_team("b", 3)), BOTH, {"a": 5, "b": 3}
    ),
    "weight 0 gets its guarantee and nothing that others want": Case(
        N8, (make_team("a", 2, weight=0), make_team("b")), BOTH, {"a": 2, "b": 6}
    ),
    "weight 0 still uses what nobody else wants": Case(
        N8,
        (make_team("a", weight=0), make_team("b")),
        (make_job("a", 1, 8, team="a"), make_job("b", 1, 3, team="b")),
        {"a": 5, "b": 3},
    ),
    "what one team leaves of its part goes to the others": Case(
        N8,
        (make_team("a"), make_team("b"), make_team("c")),
        (make_job("a", 1, 1, team="a"), make_job("b", 1, 8, team="b"), make_job("c", 1, 4, team="c")),
        {"a": 1, "b": 4, "c": 3},
    ),
    "of an odd number of GPUs the older team gets the last": Case(
        (make_node("n1", 5),), (make_team("a", created=9.0), make_team("b", created=5.0)), BOTH, {"a": 2, "b": 3}
    ),
    "of teams of one age the first by name gets the last GPU": Case(
        (make_node("n1", 5),), (make_team("b"), make_team("a")), BOTH, {"a": 3, "b": 2}
    ),
    "of teams of one age the first by name begins": Case(
        (make_node("n1", 5),), (make_team("b", 8), make_team("a", 8)), BOTH, {"a": 3, "b": 2}
    ),
    "a namespace without a policy uses what is idle": Case(N8, (make_team("a", 4),), ONLY_B, {"b": 8}),
    "a namespace without a policy counts with weight 1": Case(
        N8, (make_team("a", 2, weight=2),), BOTH, {"a": 6, "b": 2}
    ),
    "guarantees beyond what there is: first come, first served": Case(
        N8,
        (make_team("a", 8), make_team("b", 8)),
        (make_job("a", 6, team="a"), make_job("b", 6, team="b", on=on("n1", 6))),
        {"a": "", "b": "m0 w0 w1 w2 w3 w4"},
    ),
}

LIMITS = {
    "borrowing 0 stops at the guarantee though GPUs are idle": Case(
        N8, (make_team("a", 2, borrow=0),), ONLY_A, {"a": 2}
    ),
    "a borrowing limit is counted from the guarantee on": Case(N8, (make_team("a", 2, borrow=3),), ONLY_A, {"a": 5}),
    "a minimum above the limit does not start": Case(
        N8, (make_team("a", 2, borrow=1),), (make_job("a", 4, 8, team="a"),), {"a": ""}
    ),
    "all jobs of a team count against its limit": Case(
        N8,
        (make_team("a", 4, borrow=0),),
        (make_job("x", 1, 8, team="a"), make_job("y", 1, 8, team="a")),
        {"x": 2, "y": 2},
    ),
    "foreign pods of a team count against its limit": Case(
        (make_node("n1", 8, used=3, by="a"),), (make_team("a", 4, borrow=0),), ONLY_A, {"a": "+m0@n1"}
    ),
    "foreign pods of another team do not": Case(
        (make_node("n1", 8, used=3, by="b"),), (make_team("a", 4, borrow=0),), ONLY_A, {"a": 4}
    ),
    "pods on their way out count against the limit until they are gone": Case(
        (make_node("n1", 8, leaving=2, by="a"),),
        (make_team("a", 4, borrow=0),),
        ONLY_A,
        {"a": "+m0@n1 +w0@n1 ~w1@n1 ~w2@n1"},
    ),
    "a lowered limit shrinks nobody by itself": Case(
        N8, (make_team("a", 1, borrow=1),), (make_job("a", 1, 8, team="a", on=on("n1", 4)),), {"a": "m0 w0 w1 w2"}
    ),
    "at the limit a new job gets what another has above its minimum, once that is gone": Case(
        N8,
        (make_team("a", 4, borrow=0),),
        (make_job("x", 1, 4, team="a", on=on("n1", 4)), make_job("y", 2, team="a")),
        {"x": "m0 w0 -w2 -w1", "y": "~m0@n1 ~w0@n1"},
    ),
    "at the limit a whole job is preempted for one of higher priority": Case(
        N8,
        (make_team("a", 4, borrow=0),),
        (make_job("x", 4, team="a", on=on("n1", 4)), make_job("y", 2, team="a", priority=1)),
        {"x": "-w2 -w1 -w0 -m0", "y": "~m0@n1 ~w0@n1"},
    ),
    "at the limit no whole job is preempted for one of the same priority": Case(
        N8,
        (make_team("a", 4, borrow=0),),
        (make_job("x", 4, team="a", on=on("n1", 4)), make_job("y", 2, team="a", age=9)),
        {"x": "m0 w0 w1 w2", "y": ""},
    ),
    "at the limit another team's jobs are left alone": Case(
        N8,
        (make_team("a", 2, borrow=0), make_team("b")),
        (
            make_job("x", 2, team="a", on=on("n1", 2)),
            make_job("y", 1, team="a", age=9),
            make_job("b", 1, 6, team="b", on=on("n1", 6)),
        ),
        {"x": 2, "y": 0, "b": 6},
    ),
    "a job without GPUs needs no quota": Case(
        N8,
        (make_team("a", 0, borrow=0),),
        (make_job("a", 2, team="a", shape=make_shape(0), flavor=""),),
        {"a": "+m0@n1 +w0@n1"},
    ),
}

LENDING = {
    "what is kept back is nobody's fair share": Case(
        N8,
        (make_team("a", 4, lend=0), make_team("b", priority=1), make_team("c")),
        (make_job("b", 1, 4, team="b", on="n1 n1"), make_job("c", 1, 4, team="c", on="n1 n1")),
        {"b": 4, "c": 0},
    ),
    "what is not to be lent stays idle": Case(N8, (make_team("a", 4, lend=1), make_team("b")), ONLY_B, {"b": 5}),
    "lending 0 keeps the whole guarantee": Case(N8, (make_team("a", 4, lend=0), make_team("b")), ONLY_B, {"b": 4}),
    "what a team uses of its guarantee is not kept back once more": Case(
        N8,
        (make_team("a", 4, lend=0), make_team("b")),
        (make_job("a", 3, team="a"), make_job("b", 1, 8, team="b")),
        {"a": 3, "b": 4},
    ),
    "what was kept back is there at once when its team asks": Case(
        N8,
        (make_team("a", 4, lend=0), make_team("b")),
        (make_job("a", 4, team="a"), make_job("b", 1, 8, team="b", on=on("n1", 4))),
        {"a": "+m0@n1 +w0@n1 +w1@n1 +w2@n1", "b": "m0 w0 w1 w2"},
    ),
    "another's guarantee may use what is kept back from borrowers": Case(
        N8, (make_team("a", 4, lend=0), make_team("b", 6)), ONLY_B, {"b": 6}
    ),
}

JOBS = {
    "one job gets no more GPUs than a job of its team may have": Case(
        N8, (make_team("a", 8, max_gpus_per_job=3),), ONLY_A, {"a": 3}
    ),
    "the limit of one job counts GPUs, not pods": Case(
        N8,
        (make_team("a", 8, max_gpus_per_job=5),),
        (make_job("a", 1, 4, team="a", shape=make_shape(2)),),
        {"a": "+m0@n1 +w0@n1"},
    ),
    "a job whose minimum is above the limit of one job does not start": Case(
        N8, (make_team("a", 8, max_gpus_per_job=3),), (make_job("a", 4, team="a"),), {"a": ""}
    ),
    "two jobs may have together what one may not": Case(
        N8,
        (make_team("a", max_gpus_per_job=3),),
        (make_job("x", 1, 8, team="a"), make_job("y", 1, 8, team="a")),
        {"x": 3, "y": 3},
    ),
    "a job that is not preemptible stops at the guarantee": Case(
        N8, (make_team("a", 2),), (make_job("a", 1, 8, team="a", preemptible=False),), {"a": 2}
    ),
    "a job that is not preemptible and needs more than the guarantee does not start": Case(
        N8, (make_team("a", 2),), (make_job("a", 3, team="a", preemptible=False),), {"a": ""}
    ),
    "jobs that are not preemptible share the guarantee": Case(
        N8,
        (make_team("a", 3),),
        (
            make_job("x", 2, team="a", preemptible=False, age=9),
            make_job("y", 2, team="a", preemptible=False),
            make_job("z", 1, 8, team="a"),
        ),
        {"x": 2, "y": 0, "z": 6},
    ),
    "a job that is not preemptible takes the guarantee back from the team's own surplus": Case(
        N8,
        (make_team("a", 4),),
        (
            make_job("x", 1, 8, team="a", on=on("n1", 8), age=9),
            make_job("y", 4, team="a", preemptible=False),
        ),
        {"x": "m0 w0 w1 w2 -w6 -w5 -w4 -w3", "y": "~m0@n1 ~w0@n1 ~w1@n1 ~w2@n1"},
    ),
    "a namespace without a policy has no room for jobs that are not preemptible": Case(
        N8, (), (make_job("a", 1, 2, team="a", preemptible=False),), {"a": ""}
    ),
}

ALL = {**DIVISION, **LIMITS, **LENDING, **JOBS}


@pytest.mark.parametrize("fact", ALL)
def test_share(fact):
    assert came_out(ALL[fact]) == ALL[fact].expected
