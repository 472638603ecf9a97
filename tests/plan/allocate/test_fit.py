"""kube-scheduler's yes-or-no questions about a node and a pod."""

from __future__ import annotations

import pytest

from elastic_operator.plan.allocation.fit import collide, matches_term, misfit, tolerated
from elastic_operator.plan.facts.node import Taint
from elastic_operator.plan.facts.requirements import Toleration
from tests.plan.allocate.world import make_node, make_shape

TAINT = Taint("team", "NoSchedule", "a")
NODE = make_node("n1", labels={"zone": "a", "gpus": "8", "name": "x8"})


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration("team", "Equal", "a", "NoSchedule"), True),
        (Toleration("team", "Equal", "a"), True),
        (Toleration("team", "Equal", "b"), False),
        (Toleration("team", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("team", "Gt", "a"), False),
    ],
)
def test_tolerations(toleration, covers):
    assert tolerated(TAINT, [toleration]) is covers


@pytest.mark.parametrize(
    ("effect", "keeps_away"), [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)]
)
def test_only_hard_taints_keep_pods_away(effect, keeps_away):
    assert bool(misfit(make_shape(), make_node(taints=(Taint("k", effect),)))) is keeps_away


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        (expression("zone", "In", "a", "b"), True),
        (expression("zone", "In", "b"), False),
        (expression("none", "In", "a"), False),
        (expression("zone", "NotIn", "b"), True),
        (expression("zone", "NotIn", "a"), False),
        (expression("none", "NotIn", "a"), True),
        (expression("zone", "Exists"), True),
        (expression("none", "Exists"), False),
        (expression("none", "DoesNotExist"), True),
        (expression("zone", "DoesNotExist"), False),
        (expression("gpus", "Gt", "7"), True),
        (expression("gpus", "Gt", "8"), False),
        (expression("gpus", "Lt", "9"), True),
        (expression("gpus", "Lt", "8"), False),
        (expression("name", "Gt", "7"), False),
        (expression("gpus", "Gt", "seven"), False),
        (expression("gpus", "Lt", str(2**63 - 1)), True),
        (expression("gpus", "Lt", str(2**63)), False),
        (expression("gpus", "Gt", str(-(2**63))), True),
        (expression("gpus", "Gt", str(-(2**63) - 1)), False),
        (expression("gpus", "Lt", "0" * 5000 + "9"), True),
        (expression("gpus", "Lt", "9" * 5000), False),
        (expression("none", "Gt", "7"), False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}, False),
        (
            {
                **expression("zone", "In", "a"),
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": []}],
            },
            False,
        ),
        ({}, False),
    ],
)
def test_node_selector_terms(term, matches):
    assert matches_term(term, NODE) is matches


def test_one_matching_term_is_enough_but_the_node_selector_must_match_too():
    terms = (expression("zone", "In", "b"), expression("zone", "In", "a"))
    assert not misfit(make_shape(affinity=terms, node_selector={"zone": "a"}), NODE)
    assert misfit(make_shape(affinity=terms[:1]), NODE) == "node affinity"
    assert misfit(make_shape(affinity=terms, node_selector={"zone": "b"}), NODE) == "no label zone=b"


@pytest.mark.parametrize(
    ("wanted", "held", "collides"),
    [
        (("", "TCP", 80), ("", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("", "TCP", 80), True),
        (("", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.2", "TCP", 80), ("10.0.0.1", "TCP", 80), False),
        (("", "UDP", 80), ("", "TCP", 80), False),
        (("", "TCP", 81), ("", "TCP", 80), False),
    ],
)
def test_host_ports_collide_by_protocol_port_and_address(wanted, held, collides):
    assert collide([wanted], [held]) is collides


@pytest.mark.parametrize(
    ("node", "opened"),
    [
        (make_node(), True),
        (make_node(cordoned=True), False),
        (make_node(ready=False), False),
        (make_node(taints=(Taint("node.kubernetes.io/not-ready", "NoSchedule"),)), False),
        (make_node(taints=(Taint("node.kubernetes.io/disk-pressure", "NoSchedule"),)), False),
        (make_node(taints=(Taint("node.kubernetes.io/disk-pressure", "PreferNoSchedule"),)), True),
        (make_node(taints=(Taint("team.example/only", "NoSchedule"),)), True),
    ],
)
def test_a_node_is_open_unless_cordoned_or_not_ready_or_under_pressure(node, opened):
    assert (not node.why_closed) is opened
