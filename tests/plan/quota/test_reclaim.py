"""Who takes GPUs from whom: guarantees come back, fair shares even out, and nobody takes in turn."""

from __future__ import annotations

import pytest

from elastic_operator.plan.facts.demand import Bar, PreemptionBar
from tests.plan.allocate.world import NOW, make_job, make_node, make_shape, make_team
from tests.plan.quota.cases import Case, came_out, on

N8 = (make_node("n1", 8),)
GUARANTEED = (make_team("a", 4), make_team("b", 4))
EQUALS = (make_team("a"), make_team("b"))
TWO_GPUS = make_shape(2)


def elastic_b(pods=8, **more):
    """A job of team b that could shrink to one pod, with so many on n1."""
    return make_job("b", 1, 8, team="b", on=on("n1", pods), **more)


GUARANTEES = {
    "a guarantee comes back from what a borrower has above its minimum": Case(
        N8,
        GUARANTEED,
        (make_job("a", 4, team="a"), elastic_b()),
        {"a": "~m0@n1 ~w0@n1 ~w1@n1 ~w2@n1", "b": "m0 w0 w1 w2 -w6 -w5 -w4 -w3"},
    ),
    "a job for which no pod may be evicted gets what is idle": Case(
        N8,
        GUARANTEED,
        (make_job("a", 1, 4, team="a", bar=Bar(PreemptionBar.PODS_REFUSED)), elastic_b(6)),
        {"a": 2, "b": 6},
    ),
    "and another one of its team and shape takes all the same": Case(
        N8,
        GUARANTEED,
        (
            make_job("a", 2, team="a", bar=Bar(PreemptionBar.PODS_REFUSED), age=9),
            make_job("x", 2, 3, team="a"),
            elastic_b(),
        ),
        {"a": 0, "x": 3, "b": 5},
    ),
    "no more comes back than is asked for": Case(
        N8, GUARANTEED, (make_job("a", team="a"), elastic_b()), {"a": "~m0@n1", "b": "m0 w0 w1 w2 w3 w4 w5 -w6"}
    ),
    "growth within the guarantee takes it back as well": Case(
        N8,
        GUARANTEED,
        (make_job("a", 1, 3, team="a", on="n1"), elastic_b(7)),
        {"a": "m0 ~w0@n1 ~w1@n1", "b": "m0 w0 w1 w2 w3 -w5 -w4"},
    ),
    "what growth leaves of a large pod goes to the lowest team, which had found no room before": Case(
        (make_node("n1", 8, used=2),),
        (make_team("a", 5), make_team("b", 3), make_team("z")),
        (
            make_job("a", 1, 8, team="a", on="n1", bar=Bar(PreemptionBar.PODS_REFUSED)),
            make_job("b", 1, 8, team="b", on="n1"),
            make_job("z", 1, 2, team="z", on="n1 n1", master=make_shape(0), shape=make_shape(4)),
        ),
        {"a": 4, "b": "m0 ~w0@n1", "z": "m0 -w0"},
    ),
    "and in a team to the job with the least beyond its minimum": Case(
        (make_node("n1", 8, used=1),),
        (make_team("a", 8), make_team("z")),
        (
            make_job("x", 1, 8, team="a", on="n1", bar=Bar(PreemptionBar.PODS_REFUSED)),
            make_job("y", 1, 8, team="a", on="n1 n1"),
            make_job("z", 1, 2, team="z", on="n1 n1", master=make_shape(0), shape=make_shape(4)),
        ),
        {"x": 4, "y": "m0 w0 ~w1@n1", "z": "m0 -w0"},
    ),
    "growth beyond guarantee and fair share takes nothing": Case(
        N8,
        GUARANTEED,
        (make_job("a", 1, 8, team="a", on=on("n1", 4)), elastic_b(4)),
        {"a": "m0 w0 w1 w2", "b": "m0 w0 w1 w2"},
    ),
    "a job without surplus goes as a whole": Case(
        (make_node("n1", 6),),
        GUARANTEED,
        (make_job("a", 2, team="a"), make_job("b", 6, team="b", on=on("n1", 6))),
        {"a": "~m0@n1 ~w0@n1", "b": "-w4 -w3 -w2 -w1 -w0 -m0"},
    ),
    "a job of higher priority goes too, as priorities count within a team": Case(
        (make_node("n1", 6),),
        GUARANTEED,
        (make_job("a", 2, team="a"), make_job("b", 6, team="b", on=on("n1", 6), priority=9)),
        {"a": "~m0@n1 ~w0@n1", "b": "-w4 -w3 -w2 -w1 -w0 -m0"},
    ),
    "a job that goes as a whole stays if its minimum fits elsewhere": Case(
        (make_node("n1", 2, labels={"kind": "big"}), make_node("n2", 2)),
        GUARANTEED[:1],
        (
            make_job("a", team="a", shape=make_shape(node_selector={"kind": "big"})),
            make_job("b", 2, team="b", on="n1 n1"),
        ),
        {"a": "~m0@n1", "b": "m0 +w1@n2 -w0"},
    ),
    "surplus goes before a whole job, even of a higher priority": Case(
        (make_node("n1", 4),),
        (make_team("a", 1), make_team("b")),
        (
            make_job("a", team="a"),
            make_job("x", 1, 2, team="b", on=on("n1", 2), priority=5),
            make_job("y", 2, team="b", on=on("n1", 2)),
        ),
        {"a": "~m0@n1", "x": "m0 -w0", "y": "m0 w0"},
    ),
    "who is within the guarantee loses nothing": Case(
        N8,
        (make_team("a", 8), make_team("b", 4), make_team("c")),
        (
            make_job("a", 5, team="a"),
            make_job("b", 1, 8, team="b", on=on("n1", 4)),
            make_job("c", 1, 8, team="c", on=on("n1", 4)),
        ),
        {"a": 0, "b": 4, "c": 4},
    ),
    "guarantees above the capacity do not take from each other": Case(
        N8,
        (make_team("a", 8), make_team("b", 8)),
        (make_job("a", 4, 8, team="a"), elastic_b()),
        {"a": "", "b": "m0 w0 w1 w2 w3 w4 w5 w6"},
    ),
    "of guarantees above the capacity each keeps what it has": Case(
        N8,
        (make_team("a", 8), make_team("b", 8)),
        (make_job("a", 1, 8, team="a", on=on("n1", 3)), elastic_b(5)),
        {"a": "m0 w0 w1", "b": "m0 w0 w1 w2 w3"},
    ),
    "one large pod takes nothing where only a part of it is borrowed": Case(
        (make_node("n1", 4),),
        (make_team("a", 4), make_team("b", 2)),
        (make_job("a", team="a", shape=make_shape(4)), make_job("b", 1, 4, team="b", on=on("n1", 4))),
        {"a": "", "b": "m0 w0 w1 w2"},
    ),
    "surplus goes before a whole job of a team that is further beyond its share": Case(
        (make_node("n1", 10),),
        (make_team("a", 1), make_team("b"), make_team("c"), make_team("d", 5, weight=0)),
        (
            make_job("a", team="a"),
            make_job("b", 6, team="b", on=on("n1", 6)),
            make_job("c", 1, 4, team="c", on=on("n1", 4)),
            make_job("d", 9, team="d"),
        ),
        {"a": 1, "b": 6, "c": 3, "d": 0},
    ),
    "a lowered guarantee makes its owner a borrower": Case(
        N8, (make_team("a", 4), make_team("b", 2)), (make_job("a", 4, team="a"), elastic_b()), {"a": 4, "b": 4}
    ),
    "a namespace without a policy gives back what it borrowed": Case(
        N8, (make_team("a", 8),), (make_job("a", 8, team="a"), elastic_b()), {"a": 8, "b": 0}
    ),
}

FAIR_SHARES = {
    "without guarantees a newcomer gets its fair share of what runs": Case(
        N8, EQUALS, (make_job("a", 1, 8, team="a"), elastic_b()), {"a": 4, "b": 4}
    ),
    "at fair shares nobody takes": Case(
        N8,
        EQUALS,
        (make_job("a", 1, 8, team="a", on=on("n1", 4)), elastic_b(4)),
        {"a": "m0 w0 w1 w2", "b": "m0 w0 w1 w2"},
    ),
    "a minimum above the fair share takes nothing": Case(
        N8, EQUALS, (make_job("a", 5, team="a"), elastic_b()), {"a": "", "b": "m0 w0 w1 w2 w3 w4 w5 w6"}
    ),
    "of equal teams the older one has the odd GPU, and the younger gives it": Case(
        (make_node("n1", 3),),
        (make_team("a", created=5.0), make_team("b", created=9.0)),
        (make_job("a", 1, 3, team="a", on="n1"), make_job("b", 1, 3, team="b", on=on("n1", 2))),
        {"a": "m0 ~w0@n1", "b": "m0 -w0"},
    ),
    "of equal teams the younger one does not take the odd GPU": Case(
        (make_node("n1", 3),),
        (make_team("a", created=9.0), make_team("b", created=5.0)),
        (make_job("a", 1, 3, team="a", on="n1"), make_job("b", 1, 3, team="b", on=on("n1", 2))),
        {"a": "m0", "b": "m0 w0"},
    ),
    "a higher tier takes what a lower one borrows": Case(
        N8, (make_team("a", priority=1), make_team("b")), (make_job("a", 6, team="a"), elastic_b()), {"a": 6, "b": 2}
    ),
    "a higher tier takes nothing of a guarantee": Case(
        N8,
        (make_team("a", priority=1), make_team("b", 4)),
        (make_job("a", 5, team="a"), elastic_b()),
        {"a": 0, "b": 8},
    ),
    "by weight 3 a team takes three quarters": Case(
        N8, (make_team("a", weight=3), make_team("b")), (make_job("a", 1, 8, team="a"), elastic_b()), {"a": 6, "b": 2}
    ),
    "by weight 0 a team takes nothing": Case(
        N8, (make_team("a", weight=0), make_team("b")), (make_job("a", team="a"), elastic_b()), {"a": 0, "b": 8}
    ),
    "who uses GPUs without any share gives first": Case(
        N8,
        (make_team("a", 1), make_team("b", weight=0), make_team("c")),
        (
            make_job("a", team="a"),
            make_job("b", 1, 2, team="b", on=on("n1", 2)),
            make_job("c", 1, 6, team="c", on=on("n1", 6)),
        ),
        {"a": 1, "b": 1, "c": 6},
    ),
    "a limit on the fair share limits what is taken": Case(
        N8,
        (make_team("a", borrow=2), make_team("b")),
        (make_job("a", 1, 8, team="a"), elastic_b()),
        {"a": 2, "b": 6},
    ),
}


def job_of_b(name, **more):
    """A job of three pods that could shrink to one."""
    return make_job(name, 1, 3, team="b", on=on("n1", 3), **more)


def one_gives(*jobs, gives):
    """Of two jobs on six GPUs that one gives the GPU that another team is guaranteed."""
    sizes = {job.name: 3 - (job.name == gives) for job in jobs}
    teams = (make_team("a", 1), make_team("b"))
    return Case((make_node("n1", 6),), teams, (make_job("a", team="a"), *jobs), {"a": 1, **sizes})


VICTIMS = {
    "the team furthest beyond its fair share gives first": Case(
        (make_node("n1", 9),),
        (make_team("a", 1), make_team("b"), make_team("c")),
        (
            make_job("a", team="a"),
            make_job("b", 1, 3, team="b", on=on("n1", 3)),
            make_job("c", 1, 6, team="c", on=on("n1", 6), age=9),
        ),
        {"a": "~m0@n1", "b": "m0 w0 w1", "c": "m0 w0 w1 w2 w3 -w4"},
    ),
    "one GPU of one team goes rather than four of a team further beyond its share": Case(
        (make_node("n1", 4), make_node("n2", 4), make_node("n3", 1)),
        (make_team("a", 1), make_team("b"), make_team("c"), make_team("d", 4, weight=0)),
        (
            make_job("a", team="a"),
            make_job("b", 1, 2, team="b", on="n3 n1", master=make_shape(1), shape=make_shape(4)),
            make_job("c", 1, 4, team="c", on=on("n2", 4)),
            make_job("d", 9, team="d"),
        ),
        {"a": "~m0@n2", "b": "m0 w0", "c": "m0 w0 w1 -w2", "d": ""},
    ),
    "of one team's jobs the one of lower priority gives first": one_gives(
        job_of_b("x", priority=1), job_of_b("y", age=9), gives="y"
    ),
    "of one team's jobs of one priority the youngest gives first": one_gives(
        job_of_b("x", age=1), job_of_b("y", age=9), gives="x"
    ),
    "jobs of one age give by uid, the higher first": one_gives(job_of_b("y"), job_of_b("x"), gives="y"),
    "one pod of two GPUs goes rather than two of one": Case(
        (make_node("n1", 5),),
        (make_team("a", 2), make_team("b")),
        (
            make_job("a", team="a", shape=TWO_GPUS),
            make_job("x", 1, 2, team="b", on="n1 n1", master=make_shape(1), shape=TWO_GPUS, age=9),
            make_job("y", 0, sizes=(1, 2), team="b", on="n1 n1"),
        ),
        {"a": "~m0@n1", "x": "m0 -w0", "y": "m0 w0"},
    ),
    "a job that is not preemptible is no victim, however far its team is beyond": Case(
        N8,
        (make_team("a", 4), make_team("b")),
        (make_job("a", 1, 4, team="a"), elastic_b(preemptible=False)),
        {"a": "", "b": "m0 w0 w1 w2 w3 w4 w5 w6"},
    ),
    "beside it the other jobs of its team are": Case(
        N8,
        (make_team("a", 4), make_team("b", 4)),
        (
            make_job("a", 4, team="a"),
            make_job("x", 4, team="b", on=on("n1", 4), preemptible=False),
            make_job("y", 1, 4, team="b", on=on("n1", 4), age=9),
        ),
        {"a": 4, "x": 4, "y": 0},
    ),
    "what foreign pods use beyond a guarantee cannot be taken": Case(
        (make_node("n1", 8, used=8, by="b"),), (make_team("a", 4),), (make_job("a", 1, 4, team="a"),), {"a": ""}
    ),
    "before minRuntime a job does not go as a whole": Case(
        N8,
        (make_team("a", 4), make_team("b", min_runtime_seconds=60)),
        (make_job("a", 4, team="a"), make_job("b", 8, team="b", on=on("n1", 8), running_since=NOW - 59)),
        {"a": 0, "b": 8},
    ),
    "from minRuntime on it does": Case(
        N8,
        (make_team("a", 4), make_team("b", min_runtime_seconds=60)),
        (make_job("a", 4, team="a"), make_job("b", 8, team="b", on=on("n1", 8), running_since=NOW - 60)),
        {"a": 4, "b": 0},
    ),
    "surplus goes before minRuntime is over": Case(
        N8,
        (make_team("a", 4), make_team("b", min_runtime_seconds=60)),
        (make_job("a", 4, team="a"), elastic_b(running_since=NOW - 1)),
        {"a": 4, "b": 4},
    ),
    "of two whole jobs the one past minRuntime goes, though it is older": Case(
        N8,
        (make_team("a", 4), make_team("b", min_runtime_seconds=60)),
        (
            make_job("a", 4, team="a"),
            make_job("x", 4, team="b", on=on("n1", 4), running_since=NOW - 90, age=90),
            make_job("y", 4, team="b", on=on("n1", 4), running_since=NOW - 30, age=30),
        ),
        {"a": 4, "x": 0, "y": 4},
    ),
}


def grows(*sizes, guaranteed=0):
    """A job of team a has two pods on eight GPUs and grows; team b has jobs that cannot shrink."""
    fixed = [make_job(f"b{pods}{i}", pods, team="b", on=on("n1", pods), age=i) for i, pods in enumerate(sizes)]
    return (make_team("a", guaranteed), make_team("b")), (make_job("a", 1, 4, team="a", on="n1 n1"), *fixed)


GROWTH = {
    "growth to a fair share ends no job where that takes another team below its own": Case(
        N8, *grows(3, 3), {"a": 2, "b30": 3, "b31": 3}
    ),
    "it does where the other team keeps its share": Case(N8, *grows(1, 5), {"a": 3, "b10": 0, "b51": 5}),
    "growth to what is guaranteed ends jobs": Case(N8, *grows(3, 3, guaranteed=3), {"a": 4, "b30": 0, "b31": 3}),
}

ALL = {**GUARANTEES, **FAIR_SHARES, **VICTIMS, **GROWTH}


@pytest.mark.parametrize("fact", ALL)
def test_reclaim(fact):
    assert came_out(ALL[fact]) == ALL[fact].expected
