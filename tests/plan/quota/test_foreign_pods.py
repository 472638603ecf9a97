"""Foreign pods: what they use counts, and elastic jobs release pods for those that wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_operator.plan.allocation.admit import MAX_NOMINATIONS_PER_PASS
from elastic_operator.plan.allocation.allocate import allocate
from tests.plan.allocate.world import NOW, make_inputs, make_job, make_node, make_shape, make_team
from tests.plan.quota.cases import Case, came_out, make_foreign_pod, on

N8 = (make_node("n1", 8),)
TEAMS = (make_team("a", 4), make_team("b"))
BORROWER = make_job("b", 1, 8, team="b", on=on("n1", 8))
ALL_STAY = "m0 w0 w1 w2 w3 w4 w5 w6"


def waiting(*pods):
    """These foreign pods wait."""
    return {"foreign_pods": pods}


PLANS = {
    "a pod within the guarantee gets a place that a borrower leaves": Case(
        N8, TEAMS, (BORROWER,), {"r": "n1 -b-w6", "b": "m0 w0 w1 w2 w3 w4 w5 -w6"}, waiting(make_foreign_pod())
    ),
    "a pod of two GPUs takes exactly two pods of one": Case(
        N8, TEAMS, (BORROWER,), {"r": "n1 -b-w6 -b-w5", "b": 6}, waiting(make_foreign_pod(gpus=2))
    ),
    "two pods take one each": Case(
        (make_node("n1", 4), make_node("n2", 4)),
        TEAMS,
        (make_job("b", 1, 8, team="b", on=f"{on('n1', 4)} {on('n2', 4)}"),),
        {"r": "n2 -b-w6", "s": "n1 -b-w2", "b": 6},
        waiting(make_foreign_pod("r", age=9), make_foreign_pod("s")),
    ),
    "of two for one node the second waits until the first is bound: nominated, they would keep each other out": Case(
        N8,
        TEAMS,
        (BORROWER,),
        {"r": "n1 -b-w6", "s": "", "b": 7},
        waiting(make_foreign_pod("r", age=9), make_foreign_pod("s")),
    ),
    "a reserved pod has its node while its victims are there: the same are evicted again": Case(
        (make_node("n1", 4), make_node("n2", 4)),
        TEAMS,
        (make_job("b", 1, 8, team="b", on=f"{on('n1', 4)} {on('n2', 4)}"),),
        {"r": "n1 -b-w2", "b": 7},
        waiting(make_foreign_pod("r", reserved="n1")),
    ),
    "a reserved pod has what becomes free on its node, before an older one": Case(
        (make_node("n1", 4, used=3, leaving=1),),
        TEAMS,
        (),
        {"r": "n1", "s": ""},
        waiting(make_foreign_pod("r", reserved="n1"), make_foreign_pod("s", age=9)),
    ),
    "a reserved pod whose place somebody else has got goes where there is room": Case(
        (make_node("n1", 4, used=4), make_node("n2", 4, used=3)),
        TEAMS,
        (),
        {"r": "n2"},
        waiting(make_foreign_pod("r", reserved="n1")),
    ),
    "a reserved pod whose node is gone is planned for anew": Case(
        N8, TEAMS, (BORROWER,), {"r": "n1 -b-w6", "b": 7}, waiting(make_foreign_pod("r", reserved="gone"))
    ),
    "a master whose workers are all surplus goes with its whole job": Case(
        (make_node("n1", 2), make_node("n2", 1)),
        TEAMS,
        (make_job("b", 1, 3, team="b", on="n1 n1 n2"),),
        {"r": "n1 -b-m0 -b-w0 -b-w1", "b": 1},
        waiting(make_foreign_pod("r", gpus=2)),
    ),
    "no more than the guarantee: the younger ones wait": Case(
        N8,
        (make_team("a", 1), make_team("b", 7)),
        (BORROWER,),
        {"r": "", "s": "n1 -b-w6", "b": 7},
        waiting(make_foreign_pod("r"), make_foreign_pod("s", age=9)),
    ),
    "of one age the lower uid has the place": Case(
        N8,
        (make_team("a", 1), make_team("b", 7)),
        (BORROWER,),
        {"r": "n1 -b-w6", "s": "", "b": 7},
        waiting(make_foreign_pod("s"), make_foreign_pod("r")),
    ),
    "a pod within the fair share gets a place too": Case(
        N8, (make_team("a"), make_team("b")), (BORROWER,), {"r": "n1 -b-w6", "b": 7}, waiting(make_foreign_pod())
    ),
    "a pod without any right gets none": Case(
        N8,
        (make_team("a", weight=0), make_team("b")),
        (BORROWER,),
        {"r": "", "b": ALL_STAY},
        waiting(make_foreign_pod()),
    ),
    "a team whose foreign pods use its guarantee has no right to more": Case(
        (make_node("n1", 8, used=4, by="a"),),
        (make_team("a", 4), make_team("b", 4)),
        (make_job("b", 1, 4, team="b", on=on("n1", 4)),),
        {"r": "", "b": 4},
        waiting(make_foreign_pod()),
    ),
    "what foreign pods use is part of their team's share": Case(
        (make_node("n1", 8, used=4, by="a"),),
        (make_team("a", priority=2), make_team("b", priority=1), make_team("c")),
        (make_job("b", 1, 4, team="b", on="n1 n1"), make_job("c", 1, 4, team="c", on="n1 n1")),
        {"b": 4, "c": 0},
    ),
    "what foreign pods use beyond their guarantee cannot be had": Case(
        (make_node("n1", 8, used=8, by="b"),), TEAMS, (), {"r": ""}, waiting(make_foreign_pod())
    ),
    "a pod gets a place that its own team's surplus leaves": Case(
        N8,
        (make_team("a", 8),),
        (make_job("x", 1, 8, team="a", on=on("n1", 8)),),
        {"r": "n1 -x-w6", "x": 7},
        waiting(make_foreign_pod()),
    ),
    "a pod that lacks CPU takes nothing, as evicting does not help": Case(
        (make_node("n1", 8, cpu=16, used_cpu=8),),
        TEAMS,
        (BORROWER,),
        {"r": "", "b": ALL_STAY},
        waiting(make_foreign_pod(cpu=12)),
    ),
    "a pod that fits on no node takes nothing": Case(
        (make_node("n1", 4), make_node("n2", 4)),
        (make_team("a", 8), make_team("b")),
        (make_job("b", 1, 8, team="b", on="n1 n1 n1 n1 n2 n2 n2 n2"),),
        {"r": "", "b": 8},
        waiting(make_foreign_pod(gpus=8)),
    ),
    "a place is planned on one node only": Case(
        (make_node("n1", 4), make_node("n2", 4)),
        TEAMS,
        (make_job("b", 1, 8, team="b", on="n1 n1 n1 n2 n2 n2 n2 n1"),),
        {"r": "n2 -b-w5 -b-w4", "b": 6},
        waiting(make_foreign_pod(gpus=2)),
    ),
    "whole jobs are evicted for a foreign pod only after minRuntime": Case(
        N8,
        (make_team("a", 4), make_team("b", min_runtime_seconds=60)),
        (make_job("b", 8, team="b", on=on("n1", 8), running_since=NOW - 10),),
        {"r": "", "b": ALL_STAY},
        waiting(make_foreign_pod()),
    ),
    "a job that is not preemptible loses no pod": Case(
        N8,
        (make_team("a", 4), make_team("b", 4)),
        (make_job("b", 1, 8, team="b", on=on("n1", 8), preemptible=False),),
        {"r": "", "b": ALL_STAY},
        waiting(make_foreign_pod()),
    ),
}

OTHERS = {
    "a pod for which the scheduler evicts by itself is left to it": Case(
        N8, TEAMS, (BORROWER,), {"r": "", "b": ALL_STAY}, waiting(make_foreign_pod(priority=5))
    ),
    "of that priority a pod that never preempts gets a plan": Case(
        N8, TEAMS, (BORROWER,), {"r": "n1 -b-w6", "b": 7}, waiting(make_foreign_pod(priority=5, preempts=False))
    ),
    "a pod whose priority is that of the victim gets a plan": Case(
        N8,
        TEAMS,
        (make_job("b", 1, 8, team="b", on=on("n1", 8), lowest_priority=5),),
        {"r": "n1 -b-w6", "b": 7},
        waiting(make_foreign_pod(priority=5)),
    ),
    "a pod that cannot be planned for takes nothing": Case(
        N8,
        TEAMS,
        (BORROWER,),
        {"r": "", "b": ALL_STAY},
        waiting(make_foreign_pod(unplannable="it has inter-pod affinity")),
    ),
    "a pod that is nominated has its plan already": Case(
        (make_node("n1", 8, used=1),),
        TEAMS,
        (make_job("b", 1, 8, team="b", on=on("n1", 6)),),
        {"r": "", "b": "m0 w0 w1 w2 w3 w4"},
        waiting(make_foreign_pod(nominated="n1")),
    ),
    "room held for a nominated pod is given to no job, whatever its right": Case(
        (make_node("n1", 8, used=7),),
        (make_team("a", 4), make_team("b")),
        (make_job("x", team="a", priority=9),),
        {"r": "", "x": ""},
        waiting(make_foreign_pod(team="b", nominated="n1")),
    ),
    "so is the room of a nominated pod for which no place can be planned": Case(
        (make_node("n1", 8, used=7),),
        (make_team("a", 4), make_team("b")),
        (make_job("x", team="a", priority=9),),
        {"r": "", "x": ""},
        waiting(make_foreign_pod(team="b", nominated="n1", unplannable="it has inter-pod affinity")),
    ),
    "if the node is not there, no place is planned for that pod on another": Case(
        (make_node("n2", 8, used=7),),
        (make_team("a", 4), make_team("b")),
        (make_job("x", team="a", priority=9),),
        {"r": "", "x": "+m0@n2"},
        waiting(make_foreign_pod(team="b", nominated="n1", unplannable="it has inter-pod affinity")),
    ),
    "a nominated pod counts as use of its team": Case(
        (make_node("n1", 8, used=3, by="a"),),
        (make_team("a", 4, borrow=0), make_team("b")),
        (make_job("x", team="a"),),
        {"r": "", "x": ""},
        waiting(make_foreign_pod(nominated="n1")),
    ),
    "a borrower does not grow into what a waiting pod will take": Case(
        (make_node("n1", 8, leaving=1),),
        TEAMS,
        (make_job("b", 1, 8, team="b", on=on("n1", 7)),),
        {"r": "n1", "b": "m0 w0 w1 w2 w3 w4 w5"},
        waiting(make_foreign_pod()),
    ),
    "the older of a job and a foreign pod of one team has the guarantee": Case(
        N8,
        (make_team("a", 1), make_team("b", 7)),
        (BORROWER, make_job("x", team="a")),
        {"r": "n1 -b-w6", "x": 0, "b": 7},
        waiting(make_foreign_pod(age=9)),
    ),
    "who takes from others waits for these: what is free already is for the pod that it is kept for": Case(
        N8,
        (make_team("a", 1), make_team("b"), make_team("c")),
        (make_job("b", 1, 8, team="b", on=on("n1", 5)), make_job("c", 1, 8, team="c", on=on("n1", 2), age=9)),
        {"r": "n1", "b": "m0 w0 w1 w2 -w3", "c": "m0 w0 ~w1@n1"},
        waiting(make_foreign_pod(reserved="n1")),
    ),
    "victims of a victim job are evicted for the pod instead, and the job keeps its own": Case(
        (make_node("n1", 3),),
        (make_team("a", 3),),
        (make_job("a", 1, 2, team="a", on="n1 n1"), make_job("b", team="b", on="n1")),
        {"r": "n1 -b-m0", "a": "m0 w0", "b": "-m0"},
        waiting(make_foreign_pod(priority=-10)),
    ),
}

ALL = {**PLANS, **OTHERS}


@pytest.mark.parametrize("fact", ALL)
def test_pending_pod(fact):
    assert came_out(ALL[fact]) == ALL[fact].expected


def test_ways_for_many_are_made_in_several_passes():
    nodes = tuple(make_node(f"n{i}", 2) for i in range(MAX_NOMINATIONS_PER_PASS + 5))
    jobs = tuple(make_job(f"b{i}", 1, 2, team="b", on=on(f"n{i}", 2)) for i in range(len(nodes)))
    pods = tuple(make_foreign_pod(f"r{i:03}") for i in range(len(nodes)))
    inputs = replace(make_inputs(nodes, jobs, teams=(make_team("a", 99), make_team("b"))), foreign_pods=pods)
    first = allocate(inputs).nominations
    assert [plan.uid for plan in first] == [pod.uid for pod in pods[:MAX_NOMINATIONS_PER_PASS]]
    places = {plan.uid: plan.node for plan in first}
    promised = tuple(replace(pod, reserved=places.get(pod.uid, "")) for pod in pods)
    second = allocate(replace(inputs, foreign_pods=promised)).nominations
    assert {plan.uid for plan in second if plan.is_new} == {pod.uid for pod in pods[MAX_NOMINATIONS_PER_PASS:]}
    assert {plan.uid: plan.node for plan in second if not plan.is_new} == places


def test_of_many_that_a_node_was_promised_to_the_first_in_order_has_it():
    nodes, teams = (make_node("n1", 8, used=7),), (make_team("a", 99),)
    pods = tuple(make_foreign_pod(f"r{i:02}", reserved="n1") for i in range(12))
    inputs = replace(make_inputs(nodes, (), teams=teams), foreign_pods=pods)
    assert [[(plan.uid, plan.node) for plan in allocate(inputs).nominations] for _ in range(5)] == [[("r00", "n1")]] * 5


def test_what_is_free_on_a_node_that_a_pod_was_nominated_for_is_not_used_meanwhile():
    nodes, teams = (make_node("n1", 4, used=1), make_node("n2", 2)), (make_team("a", 3), make_team("b"))
    jobs = (make_job("a", 2, team="a"), make_job("b", 1, 2, team="b", on="n2 n1", shape=make_shape(2)))
    found = allocate(make_inputs(nodes, jobs, teams=teams, foreign_pods=(make_foreign_pod(nominated="n1"),)))
    assert len(found["b"].assignment.release) == 1
    assert [slot.ready for slot in found["a"].assignment.create] == [False, False]


def test_pods_that_leave_the_node_of_the_foreign_pod_leave_for_foreign_pods_only():
    inputs = make_inputs(N8, [BORROWER], teams=TEAMS, foreign_pods=(make_foreign_pod(),))
    assert allocate(inputs)["b"].only_for_foreign_pods


def test_a_pod_that_leaves_another_node_for_a_foreign_pod_is_named_in_its_nomination_too():
    """A job gets that room, because the foreign pod took other room. A later leader finds both evictions (203)."""
    nodes = make_node("n0", 1), make_node("n1", 3), make_node("n2", 1)
    jobs = make_job("j", 1, 3, team="a", on="n0 n1 n2"), make_job("w", 2, 4, team="b", age=5)
    teams = make_team("a"), make_team("b", 1)
    granted = allocate(make_inputs(nodes, jobs, teams=teams, foreign_pods=(make_foreign_pod(team="a"),)))
    assert [(plan.node, plan.victims) for plan in granted.nominations] == [("n1", ("j-w1", "j-w0"))]
    assert set(granted["j"].assignment.release) == {"j-w1", "j-w0"}
    assert granted["j"].only_for_foreign_pods
