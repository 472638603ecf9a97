"""Where GPUs are: quota that no node can honour, closed nodes, and nodes that are short of something else."""

from __future__ import annotations

import pytest

from elastic_operator.plan.facts.node import HostPort, Taint
from tests.plan.allocate.world import make_job, make_node, make_shape, make_team
from tests.plan.quota.cases import Case, came_out, on

TEAMS = (make_team("a", 4), make_team("b"))
EQUALS = (make_team("a"), make_team("b"))
PORT: frozenset[HostPort] = frozenset({("", "TCP", 9000)})
SICK = (Taint("sick", "NoSchedule"),)


def big_a(gpus=4, **shape):
    """A job of one pod with so many GPUs."""
    return make_job("a", team="a", shape=make_shape(gpus, **shape))


def borrowing_b(where, *, low=1, **more):
    """A job of team b that could shrink, with pods where the text says."""
    return make_job("b", low, len(where.split()), team="b", on=where, **more)


FRAGMENTS = {
    "quota fits, no node fits: no pod is evicted": Case(
        (make_node("n1", 4, used=2), make_node("n2", 4, used=2)),
        TEAMS,
        (big_a(), borrowing_b("n1 n1 n2 n2")),
        {"a": "", "b": "m0 w0 w1 w2"},
    ),
    "free GPUs on two nodes hold no pod of both: one node is cleared": Case(
        (make_node("n1", 4), make_node("n2", 4)),
        TEAMS,
        (big_a(), borrowing_b("n1 n1 n2 n2")),
        {"a": "~m0@n2", "b": "m0 w0 +w3@n1 +w4@n1 -w2 -w1"},
    ),
    "the node with the fewest victims is chosen": Case(
        (make_node("n1", 4), make_node("n2", 4), make_node("n3", 2)),
        TEAMS,
        (big_a(), make_job("x", 1, 5, team="b", on="n3 n2 n2 n2 n2"), make_job("y", 1, 4, team="b", on="n3 n1 n1 n1")),
        {"a": "~m0@n1", "x": "m0 w0 w1 w2 w3", "y": "m0 -w2 -w1 -w0"},
    ),
    "a node with one victim is chosen rather than one with two": Case(
        (make_node("n1", 4, used=1), make_node("n2", 4)),
        TEAMS,
        (big_a(2), borrowing_b("n9 n1 n1 n1 n2 n2 n2")),
        {"a": "~m0@n2", "b": "m0 w0 w1 w2 w3 w4 -w5"},
    ),
    "what would be free on a node that does not suit helps nobody": Case(
        (make_node("n1", 4, labels={"kind": "big"}), make_node("n2", 4)),
        TEAMS,
        (
            big_a(1, node_selector={"kind": "big"}),
            borrowing_b("n2 n2 n2 n2"),
            make_job("c", 4, team="a", on=on("n1", 4)),
        ),
        {"a": 0, "b": 4, "c": 4},
    ),
    "a pod that is larger than any node takes nothing": Case(
        (make_node("n1", 4), make_node("n2", 4)),
        (make_team("a", 8),),
        (big_a(8), borrowing_b("n1 n1 n2 n2")),
        {"a": 0, "b": 4},
    ),
}

CLOSED = {
    "on a cordoned node nobody is a victim": Case(
        (make_node("n1", 4, cordoned=True),), TEAMS, (big_a(1), borrowing_b(on("n1", 4))), {"a": 0, "b": 4}
    ),
    "on a node that is not ready nobody is a victim": Case(
        (make_node("n1", 4, ready=False),), TEAMS, (big_a(1), borrowing_b(on("n1", 4))), {"a": 0, "b": 4}
    ),
    "on a node that is tainted away nobody is a victim": Case(
        (make_node("n1", 4, taints=SICK),), TEAMS, (big_a(1), borrowing_b(on("n1", 4))), {"a": 0, "b": 4}
    ),
    "the victim is who sits on an open node": Case(
        (make_node("n1", 4, cordoned=True), make_node("n2", 2)),
        TEAMS,
        (big_a(1), borrowing_b("n1 n2 n2 n1 n1")),
        {"a": "~m0@n2", "b": "m0 w0 w2 w3 -w1"},
    ),
    "what is used on a cordoned node counts as capacity": Case(
        (make_node("n1", 4, cordoned=True), make_node("n2", 4)),
        EQUALS,
        (make_job("a", 1, 8, team="a"), make_job("b", 1, 8, team="b", on=on("n1", 4))),
        {"a": 4, "b": 4},
    ),
    "what is idle on a cordoned node does not": Case(
        (make_node("n1", 4, cordoned=True), make_node("n2", 4)),
        EQUALS,
        (make_job("a", 1, 8, team="a"), make_job("b", 1, 8, team="b")),
        {"a": 2, "b": 2},
    ),
    "what is idle on a cordoned node is not lent": Case(
        (make_node("n1", 4, cordoned=True), make_node("n2", 4)),
        (make_team("a", 4, lend=0), make_team("b")),
        (make_job("b", 1, 8, team="b"),),
        {"b": 0},
    ),
    "what foreign pods use on a cordoned node counts for their team": Case(
        (make_node("n1", 4, cordoned=True, used=4, by="a"), make_node("n2", 4)),
        (make_team("a", 4, borrow=0), make_team("b")),
        (make_job("a", team="a"), make_job("b", 1, 8, team="b")),
        {"a": 0, "b": 4},
    ),
    "what foreign pods use on a cordoned node is not made up for by others": Case(
        (make_node("n1", 4, cordoned=True, used=4, by="c"), make_node("n2", 8)),
        (make_team("a", 4, lend=0), make_team("b"), make_team("c")),
        (make_job("b", 1, 8, team="b"),),
        {"b": 4},
    ),
    "who holds its share on a cordoned node takes nothing on another": Case(
        (make_node("n1", 4, cordoned=True), make_node("n2", 4)),
        EQUALS,
        (make_job("a", 1, 8, team="a", on=on("n1", 4)), make_job("b", 1, 8, team="b", on=on("n2", 4))),
        {"a": "m0 w0 w1 w2", "b": "m0 w0 w1 w2"},
    ),
    "cordoning a node shrinks nobody on it": Case(
        (make_node("n1", 4, cordoned=True), make_node("n2", 4)),
        (make_team("a", 8), make_team("b")),
        (make_job("a", 1, 4, team="a"), make_job("b", 1, 4, team="b", on=on("n1", 4))),
        {"a": 4, "b": 4},
    ),
}

SHORT = {
    "short of CPU, evicting does not help: no pod is evicted": Case(
        (make_node("n1", 8, cpu=16, used_cpu=8),),
        TEAMS,
        (big_a(1, cpu=12), borrowing_b(on("n1", 8))),
        {"a": 0, "b": 8},
    ),
    "where evicting frees enough CPU as many go as the CPU takes": Case(
        (make_node("n1", 8, cpu=8),),
        TEAMS,
        (big_a(1, cpu=3), borrowing_b(on("n1", 8))),
        {"a": "~m0@n1", "b": "m0 w0 w1 w2 w3 -w6 -w5 -w4"},
    ),
    "the node with CPU is chosen, though its victim is no cheaper": Case(
        (make_node("n1", 4, cpu=16, used_cpu=12), make_node("n2", 4, cpu=16)),
        TEAMS,
        (big_a(1, cpu=6), borrowing_b("n2 n2 n2 n2 n1 n1 n1 n1")),
        {"a": "~m0@n2", "b": "m0 w0 w1 w3 w4 w5 w6 -w2"},
    ),
    "a host port of a foreign pod cannot be evicted: no pod is": Case(
        (make_node("n1", 4, used_ports=PORT),),
        TEAMS,
        (big_a(1, host_ports=PORT), borrowing_b(on("n1", 4))),
        {"a": 0, "b": 4},
    ),
    "a node that is full of pods takes one more when one goes": Case(
        (make_node("n1", 8, pods=4),),
        TEAMS,
        (big_a(1), borrowing_b(on("n1", 4))),
        {"a": "~m0@n1", "b": "m0 w0 w1 -w2"},
    ),
    "idle GPUs on a node without CPU: the borrower on another node gives": Case(
        (make_node("n1", 4, cpu=0), make_node("n2", 4)),
        TEAMS,
        (big_a(1), borrowing_b(on("n2", 4))),
        {"a": "~m0@n2", "b": 3},
    ),
}

ALL = {**FRAGMENTS, **CLOSED, **SHORT}


@pytest.mark.parametrize("fact", ALL)
def test_place(fact):
    assert came_out(ALL[fact]) == ALL[fact].expected
