"""Teams under parents: what a department holds, shares among its own, and takes from other departments."""

from __future__ import annotations

import pytest

from tests.plan.allocate.world import make_job, make_node, make_team
from tests.plan.quota.cases import Case, came_out, make_foreign_pod, on

N8 = (make_node("n1", 8),)


def elastic(team, pods=0, low=1):
    """The one job of a team, named like it: up to 8 pods, so many of them on n1."""
    return make_job(team, low, 8, team=team, on=on("n1", pods))


def fixed(team, pods):
    """A job of exactly so many pods that waits."""
    return make_job(team, pods, team=team)


def child(name, parent, guaranteed=0, **more):
    """A team under a parent."""
    return make_team(name, guaranteed, parent=parent, **more)


def cells(count):
    """That many nodes with one GPU each."""
    return tuple(make_node(f"n{i}", 1) for i in range(count))


def one_pod_jobs(**teams):
    """That many jobs of one pod for each team. They fill the nodes from the first one on."""
    names = [(team, f"{team}{i}") for team, count in teams.items() for i in range(count)]
    return tuple(make_job(name, team=team, on=f"n{node}", age=9) for node, (team, name) in enumerate(names))


def all_but(gone, **teams):
    """The expected sizes of `one_pod_jobs`: all but the jobs `gone` keep their pods."""
    return {f"{team}{i}": int(f"{team}{i}" not in gone.split()) for team, count in teams.items() for i in range(count)}


P_AND_Q = (make_team("p", 4), make_team("q", 4))
P_AND_T = (make_team("p", 8), child("a", "p", 4), child("b", "p", 4), make_team("t", 8))

LIMITS = {
    "a parent's limit holds for its children together": Case(
        N8,
        (make_team("p", 4, borrow=0), child("a", "p", 2), child("b", "p", 2)),
        (elastic("a"), elastic("b")),
        {"a": 2, "b": 2},
    ),
    "a child borrows what its sibling leaves idle, up to the parent's limit": Case(
        N8, (make_team("p", 4, borrow=1), child("a", "p", 2), child("b", "p", 2)), (elastic("a"),), {"a": 5}
    ),
    "a child's own limit holds whatever the parent may use": Case(
        N8, (make_team("p", 8), child("a", "p", 1, borrow=1)), (elastic("a"),), {"a": 2}
    ),
    "a grandparent's limit holds for its grandchildren": Case(
        N8,
        (make_team("r", 3, borrow=0), child("p", "r"), child("a", "p"), child("b", "p")),
        (elastic("a"), elastic("b")),
        {"a": 2, "b": 1},
    ),
    "under a parent's limit a child takes back its guarantee from its sibling": Case(
        N8,
        (make_team("p", 4, borrow=0), child("a", "p", 2), child("b", "p", 2)),
        (fixed("a", 2), elastic("b", 4)),
        {"a": "~m0@n1 ~w0@n1", "b": "m0 w0 -w2 -w1"},
    ),
    "a sibling's foreign pods count against the parent's limit": Case(
        (make_node("n1", 8, used=3, by="b"),),
        (make_team("p", 4, borrow=0), child("a", "p", 4), child("b", "p")),
        (elastic("a"),),
        {"a": 1},
    ),
    "a job that is not preemptible stays within the parent's guarantee too": Case(
        N8,
        (make_team("p", 2), child("a", "p", 4)),
        (make_job("a", 1, 8, team="a", preemptible=False),),
        {"a": 2},
    ),
    "a sibling's pods on their way out count against the parent's limit": Case(
        (make_node("n1", 8, leaving=2, by="b"),),
        (make_team("p", 4, borrow=0), child("a", "p", 4), child("b", "p")),
        (fixed("a", 4),),
        {"a": "+m0@n1 +w0@n1 ~w1@n1 ~w2@n1"},
    ),
}

SHARES = {
    "departments share first, then the teams in each": Case(
        N8,
        (make_team("p"), make_team("q"), child("a", "p"), child("b", "p"), child("c", "q")),
        (elastic("a"), elastic("b"), elastic("c")),
        {"a": 2, "b": 2, "c": 4},
    ),
    "a team's weight counts among its siblings only": Case(
        N8,
        (make_team("p", weight=3), make_team("q"), child("a", "p"), child("c", "q", weight=100)),
        (elastic("a"), elastic("c")),
        {"a": 6, "c": 2},
    ),
    "a department's tier goes before its teams'": Case(
        N8,
        (make_team("p", priority=1), make_team("q"), child("a", "p"), child("c", "q", priority=9)),
        (elastic("a"), elastic("c")),
        {"a": 8, "c": 0},
    ),
    "a sibling's tier decides inside the department": Case(
        N8,
        (make_team("p"), make_team("q"), child("a", "p", priority=1), child("b", "p"), child("c", "q")),
        (elastic("a"), elastic("b"), elastic("c")),
        {"a": 4, "b": 0, "c": 4},
    ),
    "a department does not lend what it keeps back": Case(
        N8, (make_team("p", 4, lend=0), make_team("q"), child("a", "p"), child("c", "q")), (elastic("c"),), {"c": 4}
    ),
    "a team does not lend even its siblings what it keeps back": Case(
        N8, (make_team("p", 8), child("a", "p", 4, lend=0), child("b", "p")), (elastic("b"),), {"b": 4}
    ),
    "what its teams may not use is no department's share": Case(
        N8,
        (
            make_team("p"),
            make_team("q"),
            make_team("r"),
            child("a", "p", 1, borrow=0),
            child("c", "q"),
            child("d", "r"),
        ),
        (elastic("a", 1), fixed("c", 4), make_job("d", 1, 8, team="d", on=on("n1", 7))),
        {"a": 1, "c": 4, "d": 3},
    ),
    "a team without a parent stands beside departments": Case(
        N8,
        (make_team("p"), child("a", "p"), child("b", "p"), make_team("c")),
        (elastic("a"), elastic("b"), elastic("c")),
        {"a": 2, "b": 2, "c": 4},
    ),
}

TAKING = {
    "a department takes back its guarantee for a team without one": Case(
        N8, (*P_AND_Q, child("a", "p"), child("c", "q")), (elastic("a"), elastic("c", 8)), {"a": 4, "c": 4}
    ),
    "a guarantee beyond the parent's is none against other departments": Case(
        N8,
        (make_team("p", 2), make_team("q", 4), child("a", "p", 4), child("c", "q", 4)),
        (fixed("a", 4), elastic("c", 8)),
        {"a": "", "c": "m0 w0 w1 w2 w3 w4 w5 w6"},
    ),
    "as far as the parent's guarantee and share go it is taken": Case(
        N8,
        (make_team("p", 2), make_team("q", 4), child("a", "p", 4), child("c", "q", 4)),
        (make_job("a", 2, 4, team="a"), elastic("c", 8)),
        {"a": 3, "c": 5},
    ),
    "beyond the parent's it still counts among siblings": Case(
        N8,
        (*P_AND_Q, child("a", "p", 4), child("b", "p"), child("c", "q", 4)),
        (fixed("a", 4), elastic("b", 4), elastic("c", 4)),
        {"a": 4, "b": 0, "c": 4},
    ),
    "a department at its guarantee takes from its own team first, not from another department": Case(
        N8,
        (make_team("p", 4, weight=0), make_team("q", 2), child("a", "p", 2), child("b", "p", 2), child("c", "q", 2)),
        (fixed("a", 2), elastic("b", 4), elastic("c", 4)),
        {"a": "~m0@n1 ~w0@n1", "b": "m0 w0 -w2 -w1", "c": "m0 w0 w1 w2"},
    ),
    "a borrower in a department within its guarantee loses nothing to other departments": Case(
        N8,
        (*P_AND_Q, child("a", "p"), child("c", "q"), child("d", "q", 4)),
        (elastic("a", 4), elastic("c", 4), fixed("d", 4)),
        {"a": 4, "c": 0, "d": 4},
    ),
    "a team within its own guarantee gives nothing though its department borrows": Case(
        N8,
        (make_team("p", 4), make_team("q"), child("a", "p"), child("c", "q", 8)),
        (fixed("a", 4), elastic("c", 8)),
        {"a": "", "c": "m0 w0 w1 w2 w3 w4 w5 w6"},
    ),
    "departments whose guarantees are above the capacity do not take in turn": Case(
        N8,
        (make_team("p", 8), make_team("q", 8), child("a", "p", 8), child("c", "q", 8)),
        (elastic("a", 3), elastic("c", 5)),
        {"a": "m0 w0 w1", "c": "m0 w0 w1 w2 w3"},
    ),
    "a department at its fair share takes from its own team, not from another that is further beyond": Case(
        N8,
        (
            make_team("p", weight=2),
            make_team("q"),
            make_team("r"),
            *(child("a", "p"), child("b", "p"), child("c", "q"), child("d", "r")),
        ),
        (
            fixed("a", 1),
            elastic("b", 4),
            make_job("c", 1, 8, team="c", on=on("n1", 3)),
            make_job("d", 1, team="d", on="n1"),
            make_job("e", 3, team="d"),
        ),
        {"a": 1, "b": 3, "c": 3, "d": 1, "e": 0},
    ),
    "siblings without guarantees even out inside their department": Case(
        N8,
        (*P_AND_Q, child("a", "p"), child("b", "p"), child("c", "q")),
        (elastic("a"), elastic("b", 4), elastic("c", 4)),
        {"a": 2, "b": 2, "c": 4},
    ),
    "of two teams of a department the one furthest beyond its share gives": Case(
        (make_node("n1", 9),),
        (make_team("p", 4), make_team("q"), child("a", "p"), child("c", "q", 3), child("d", "q")),
        (fixed("a", 4), make_job("c", 1, 4, team="c", on=on("n1", 4)), make_job("d", 1, 5, team="d", on=on("n1", 5))),
        {"a": 4, "c": 4, "d": 1},
    ),
    "across three levels a guarantee comes back": Case(
        N8,
        (
            make_team("r", 4),
            child("p", "r", 4),
            child("a", "p", 4),
            make_team("s"),
            child("q", "s"),
            child("c", "q"),
        ),
        (fixed("a", 4), elastic("c", 8)),
        {"a": 4, "c": 4},
    ),
    "minRuntime is that of the victim's own team": Case(
        N8,
        (*P_AND_Q, child("a", "p", 4), child("c", "q", min_runtime_seconds=60)),
        (fixed("a", 4), make_job("c", 8, team="c", on=on("n1", 8), running_since=990.0)),
        {"a": 0, "c": 8},
    ),
}

FROM_SEVERAL = {
    "a job takes from a sibling first, then from outside the department, which is within its guarantee by then": Case(
        cells(16),
        P_AND_T,
        (*one_pod_jobs(b=6, t=10), fixed("a", 4)),
        {"a": 4, **all_but("b4 b5 t8 t9", b=6, t=10)},
    ),
    "a job that needs more than both must give takes nothing": Case(
        cells(16), P_AND_T, (*one_pod_jobs(b=6, t=10), fixed("a", 5)), {"a": 0, **all_but("", b=6, t=10)}
    ),
    "two jobs of a team take from a sibling and from outside the department": Case(
        cells(16),
        P_AND_T,
        (*one_pod_jobs(b=6, t=10), make_job("a1", 1, team="a", age=1), make_job("a2", 3, team="a")),
        {"a1": 1, "a2": 3, **all_but("b4 b5 t8 t9", b=6, t=10)},
    ),
    "a gang of foreign pods takes from a sibling and from outside the department": Case(
        cells(16),
        P_AND_T,
        one_pod_jobs(b=6, t=10),
        {
            **{"g0": "n5 -b5-m0", "g1": "n15 -t9-m0", "g2": "n4 -b4-m0", "g3": "n14 -t8-m0"},
            **all_but("b4 b5 t8 t9", b=6, t=10),
        },
        {"foreign_pods": tuple(make_foreign_pod(f"g{i}", gang="g", age=9 - i) for i in range(4))},
    ),
    "across three levels each level gives in turn": Case(
        cells(20),
        (make_team("r", 12), child("p", "r", 8), *P_AND_T[1:], child("c", "r", 4)),
        (*one_pod_jobs(b=5, c=5, t=10), fixed("a", 4)),
        {"a": 4, **all_but("b4 c4 t8 t9", b=5, c=5, t=10)},
    ),
    "a job takes from its own team first, then from another, as its team is within the guarantee by then": Case(
        cells(16),
        (make_team("a", 4), make_team("t", 12)),
        (*one_pod_jobs(a=2, t=14), make_job("high", 4, team="a", priority=1)),
        {"high": 4, **all_but("a0 a1 t8 t9", a=2, t=14)},
    ),
    "a job that its own team cannot bring within the guarantee takes nothing": Case(
        cells(16),
        (make_team("a", 4), make_team("t", 12)),
        (*one_pod_jobs(a=2, t=14), make_job("high", 5, team="a", priority=1)),
        {"high": 0, **all_but("", a=2, t=14)},
    ),
    "under the department's limit a job takes from its own team first, then from a sibling": Case(
        cells(12),
        (make_team("p", 8, borrow=0), child("a", "p", 4), child("b", "p", 4)),
        (*one_pod_jobs(a=2, b=6), make_job("high", 4, team="a", priority=1)),
        {"high": 4, **all_but("a0 a1 b4 b5", a=2, b=6)},
    ),
}

ALL = {**LIMITS, **SHARES, **TAKING, **FROM_SEVERAL}


@pytest.mark.parametrize("fact", ALL)
def test_hierarchy(fact):
    assert came_out(ALL[fact]) == ALL[fact].expected
