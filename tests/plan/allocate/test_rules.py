"""The allocator's rules, a fact each: what each job keeps (m0), gets now (+w0@n1) or soon (~w0@n1), and loses (-w1)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import pytest

from elastic_operator.plan.facts.demand import FailedSize, JobDemand
from elastic_operator.plan.facts.node import HostPort, Node, Taint
from tests.plan.allocate.world import NOW, grants, make_job, make_node, make_shape, outcome

TWO = (make_node("n1", 2), make_node("n2", 2))
PORT: frozenset[HostPort] = frozenset({("", "TCP", 9000)})
GPU8 = make_shape(8)
CHOSEN = (make_node("n1", 4), make_node("n2", 1, labels={"kubernetes.io/hostname": "n2"}))
"""A master on a chosen node: `master.template` has a nodeSelector."""
ON_N2 = make_shape(node_selector={"kubernetes.io/hostname": "n2"})


@dataclass(frozen=True)
class Case:
    nodes: tuple[Node, ...]
    jobs: tuple[JobDemand, ...]
    expected: dict[str, str]


STARTING = {
    "a job starts with its minimum and grows to its maximum": Case(
        TWO, (make_job("a", 2, 3),), {"a": "+m0@n1 +w0@n1 +w1@n2"}
    ),
    "a job whose minimum does not fit as a whole gets nothing": Case(TWO, (make_job("a", 5),), {"a": ""}),
    "a job that does not fit is passed over by a younger one that does": Case(
        TWO, (make_job("a", 5, age=9), make_job("b", 4)), {"a": "", "b": "+m0@n1 +w0@n1 +w1@n2 +w2@n2"}
    ),
    "the older of two jobs of one priority starts first": Case(
        TWO, (make_job("a", 3, age=1), make_job("b", 3, age=2)), {"a": "", "b": "+m0@n1 +w0@n1 +w1@n2"}
    ),
    "of equal age the lower uid starts first": Case(
        TWO, (make_job("b", 3), make_job("a", 3)), {"a": "+m0@n1 +w0@n1 +w1@n2", "b": ""}
    ),
    "the higher priority starts first, whatever its age": Case(
        TWO,
        (make_job("a", 3, age=9), make_job("b", 3, priority=1)),
        {"a": "", "b": "+m0@n1 +w0@n1 +w1@n2"},
    ),
    "a job between two incarnations goes before one that never ran": Case(
        TWO, (make_job("a", 3, age=9), make_job("b", 3, holds=True)), {"a": "", "b": "+m0@n1 +w0@n1 +w1@n2"}
    ),
    "minima come before anybody's growth": Case(
        TWO, (make_job("a", 1, 4, age=9), make_job("b", 2, 4)), {"a": "+m0@n1 +w0@n2", "b": "+m0@n1 +w0@n2"}
    ),
    "a job without GPUs runs too, and on the node with the fewest free": Case(
        (make_node("n1", 4), make_node("n2", 0)), (make_job("a", 2, shape=make_shape(0)),), {"a": "+m0@n2 +w0@n2"}
    ),
    "a job runs on no nodes when there are none": Case((), (make_job("a"),), {"a": ""}),
    "a master of another shape is placed by its own shape": Case(
        (make_node("n1", 1), make_node("n2", 8)),
        (make_job("a", 2, master=make_shape(1), shape=GPU8),),
        {"a": "+m0@n1 +w0@n2"},
    ),
    "a master whose template chooses a node is placed there, and its workers anywhere": Case(
        CHOSEN, (make_job("a", 3, master=ON_N2),), {"a": "+m0@n2 +w0@n1 +w1@n1"}
    ),
    "a master whose chosen node is full waits for it": Case(
        (CHOSEN[0], make_node("n2", 1, used=1, labels={"kubernetes.io/hostname": "n2"})),
        (make_job("a", 1, master=ON_N2),),
        {"a": ""},
    ),
    "a lost master is replaced on its chosen node, for which one of its own workers is released": Case(
        CHOSEN, (make_job("a", 2, 3, on="- n1 n2", master=ON_N2),), {"a": "w0 ~m0@n2 +w2@n1 -w1"}
    ),
    "a master leaves its best place to the workers that fit nowhere else": Case(
        (make_node("n1", 4, cpu=4), make_node("n2", 8, cpu=4)),
        (make_job("a", 2, master=make_shape(1, cpu=4), shape=make_shape(4, cpu=4)),),
        {"a": "+m0@n1 +w0@n2"},
    ),
    "a suspended job releases everything": Case(
        TWO, (make_job("a", 1, 3, on="n1 n1 n2", wants_pods=False),), {"a": "-w1 -w0 -m0"}
    ),
    "a job without sizes gets nothing, and loses pod by pod, without its master too": Case(
        TWO,
        (make_job("a", sizes=(), on="- n1 n1"), make_job("b", 3)),
        {"a": "w0 -w1", "b": "+m0@n2 +w0@n2 ~w1@n1"},
    ),
    "a job without sizes keeps what nobody asks for": Case(
        TWO, (make_job("a", sizes=(), on="- n1 n1"), make_job("b", 2)), {"a": "w0 w1", "b": "+m0@n2 +w0@n2"}
    ),
}

PLACES = {
    "growth goes to a node the job already uses": Case(
        (make_node("n1", 1), make_node("n2", 4)), (make_job("a", 1, 2, on="n2"),), {"a": "m0 +w0@n2"}
    ),
    "a new job goes where the fewest GPUs are left": Case(
        (make_node("n1", 4), make_node("n2", 4, used=2)), (make_job("a", 2),), {"a": "+m0@n2 +w0@n2"}
    ),
    "room that is free now is taken before room that will be, even on another node": Case(
        (make_node("n1", 2, leaving=1), make_node("n2", 4)), (make_job("a", 1, 2, on="n1"),), {"a": "m0 +w0@n2"}
    ),
    "a pod for room that is still held by what leaves is for soon": Case(
        (make_node("n1", 2, leaving=1),), (make_job("a", 2),), {"a": "+m0@n1 ~w0@n1"}
    ),
    "room somebody waits for is not given to the next, though a part of it is free now": Case(
        (make_node("n1", 8, leaving=4),),
        (make_job("a", 1, shape=GPU8, priority=1), make_job("b", 1, shape=make_shape(4))),
        {"a": "~m0@n1", "b": ""},
    ),
    "a cordoned node gets no new pods, and those on it stay": Case(
        (make_node("n1", 4, cordoned=True), make_node("n2", 1)), (make_job("a", 1, 4, on="n1"),), {"a": "m0 +w0@n2"}
    ),
    "a node that is not ready gets no new pods": Case((make_node("n1", 4, ready=False),), (make_job("a"),), {"a": ""}),
    "pods on a node that was tainted after they came stay": Case(
        (make_node("n1", 4, taints=(Taint("sick", "NoSchedule"),)),), (make_job("a", 1, 2, on="n1"),), {"a": "m0"}
    ),
    "foreign pods' GPUs are not granted": Case((make_node("n1", 4, used=3),), (make_job("a", 2),), {"a": ""}),
    "a node without a place for another pod gets none": Case(
        (make_node("n1", 4, pods=1),), (make_job("a", 2),), {"a": ""}
    ),
    "CPU counts as well as GPUs": Case((make_node("n1", 4, cpu=1),), (make_job("a", 1, 4),), {"a": "+m0@n1"}),
    "two pods with one host port go to two nodes": Case(
        TWO, (make_job("a", 1, 3, shape=make_shape(host_ports=PORT)),), {"a": "+m0@n1 +w0@n2"}
    ),
    "a host port that a foreign pod has keeps ours away": Case(
        (make_node("n1", 2, used_ports=PORT), make_node("n2", 2)),
        (make_job("a", 1, shape=make_shape(host_ports=PORT)),),
        {"a": "+m0@n2"},
    ),
    "a host port that a pod on its way out still has is for soon": Case(
        (make_node("n1", 2, leaving_ports=PORT),),
        (make_job("a", 1, shape=make_shape(host_ports=PORT)),),
        {"a": "~m0@n1"},
    ),
    "8 GPUs on two nodes hold no pod of 8": Case(
        (make_node("n1", 4), make_node("n2", 4)), (make_job("a", shape=GPU8),), {"a": ""}
    ),
    "pods that are not pinned get no node but hold room": Case(
        (make_node("n1", 2),),
        (make_job("a", 2, shape=make_shape(pinnable=False), age=1), make_job("b")),
        {"a": "+m0@? +w0@?", "b": ""},
    ),
    "members the scheduler has not placed yet hold room": Case(
        (make_node("n1", 2),),
        (make_job("a", 1, shape=make_shape(pinnable=False), on="?"), make_job("b", 2)),
        {"a": "m0", "b": ""},
    ),
    "members on a node that is gone from the list are kept and hold no room": Case(
        (make_node("n1", 1),), (make_job("a", 1, 2, on="n9"),), {"a": "m0 +w0@n1"}
    ),
}

SIZES = {
    "only allowed sizes are granted": Case(TWO, (make_job("a", sizes=(1, 3)),), {"a": "+m0@n1 +w0@n1 +w1@n2"}),
    "a size is taken only if all its pods fit": Case(
        (make_node("n1", 2),), (make_job("a", sizes=(1, 3)),), {"a": "+m0@n1"}
    ),
    "a lowered maximum releases the highest indices": Case(
        TWO, (make_job("a", 1, 2, on="n1 n1 n2 n2"),), {"a": "m0 w0 -w2 -w1"}
    ),
    "a raised minimum is filled": Case(TWO, (make_job("a", 3, 3, on="n1 n1"),), {"a": "m0 w0 +w1@n2"}),
    "a raised minimum that does not fit leaves the job what it has": Case(
        (make_node("n1", 2),), (make_job("a", 3, on="n1 n1"),), {"a": "m0 w0"}
    ),
    "between two allowed sizes the upper one is completed": Case(
        TWO, (make_job("a", sizes=(2, 4), on="n1 n1 n2"),), {"a": "m0 w0 w1 +w2@n2"}
    ),
    "between two allowed sizes the lower one is taken if the upper one does not fit": Case(
        (make_node("n1", 3),), (make_job("a", sizes=(2, 4), on="n1 n1 n1"),), {"a": "m0 w0 -w1"}
    ),
    "completing an upper size goes before another job's growth": Case(
        (make_node("n1", 5),),
        (make_job("a", sizes=(2, 4), on="n1 n1 n1"), make_job("b", 1, 2, on="n1", age=9)),
        {"a": "m0 w0 w1 +w2@n1", "b": "m0"},
    ),
    "a lost worker is replaced under the lowest free index": Case(
        TWO, (make_job("a", 1, 3, on="n1 - n2"),), {"a": "m0 w1 +w0@n1"}
    ),
    "an index whose pod still exists is skipped": Case(
        TWO, (make_job("a", 1, 3, on="n1 - n2", used_indices=frozenset({0, 2})),), {"a": "m0 w1 +w3@n1"}
    ),
    "a lost master is replaced": Case(TWO, (make_job("a", 2, 2, on="- n1"),), {"a": "w0 +m0@n1"}),
    "a lost master is replaced at the cost of the job's own surplus": Case(
        (make_node("n1", 2),), (make_job("a", 1, 3, on="- n1 n1"),), {"a": "w0 ~m0@n1 -w1"}
    ),
    "a lost master with no room and no surplus leaves the workers waiting": Case(
        (make_node("n1", 2),), (make_job("a", 3, on="- n1 n1"),), {"a": "w0 w1"}
    ),
    "with the master lost a lowered maximum leaves room for a new one": Case(
        TWO, (make_job("a", 1, 2, on="- n1 n1"),), {"a": "w0 +m0@n2 -w1"}
    ),
}

GROWTH = {
    "growth goes to the job with the least beyond its minimum": Case(
        (make_node("n1", 5),),
        (make_job("a", 1, 4, on="n1 n1", age=9), make_job("b", 1, 4, on="n1")),
        {"a": "m0 w0 +w1@n1", "b": "m0 +w0@n1"},
    ),
    "of two that have the same beyond it the older grows": Case(
        (make_node("n1", 3),),
        (make_job("b", 1, 4, on="n1", age=9), make_job("a", 1, 4, on="n1")),
        {"a": "m0", "b": "m0 +w0@n1"},
    ),
    "growth preempts nobody": Case(
        (make_node("n1", 3),),
        (make_job("a", 1, 3, on="n1", priority=9), make_job("b", 1, 3, on="n1 n1")),
        {"a": "m0", "b": "m0 w0"},
    ),
    "growth waits after a change of size": Case(
        TWO, (make_job("a", 1, 4, on="n1", free=1, may_grow_at=NOW + 5),), {"a": "m0"}
    ),
    "growth waits no longer when its time has come": Case(
        TWO, (make_job("a", 1, 2, on="n1", free=1, may_grow_at=NOW),), {"a": "m0 +w0@n1"}
    ),
    "a replacement does not wait": Case(
        TWO, (make_job("a", 1, 4, on="n1", free=2, may_grow_at=NOW + 5),), {"a": "m0 +w0@n1"}
    ),
    "a minimum does not wait": Case(TWO, (make_job("a", 2, 4, free=0, may_grow_at=NOW + 5),), {"a": "+m0@n1 +w0@n1"}),
    "completing an upper size is growth when it was never granted": Case(
        TWO, (make_job("a", sizes=(2, 4), on="n1 n1 n2", free=2, may_grow_at=NOW + 5),), {"a": "m0 w0 -w1"}
    ),
    "a size that failed waits, smaller ones do not": Case(
        TWO, (make_job("a", 1, 4, on="n1", failed=FailedSize(3, NOW + 5)),), {"a": "m0 +w0@n1"}
    ),
    "a size that failed is tried again when its time has come": Case(
        TWO, (make_job("a", 1, 2, on="n1", failed=FailedSize(2, NOW)),), {"a": "m0 +w0@n1"}
    ),
    "a minimum that failed waits and holds no room": Case(
        TWO,
        (make_job("a", 4, age=9, failed=FailedSize(4, NOW + 5)), make_job("b", 4)),
        {"a": "", "b": "+m0@n1 +w0@n1 +w1@n2 +w2@n2"},
    ),
    "growth goes into room that will be free, but not yet": Case(
        (make_node("n1", 2, leaving=1),), (make_job("a", 1, 2, on="n1"),), {"a": "m0 ~w0@n1"}
    ),
    "a shrunk job's room goes to another's growth": Case(
        (make_node("n1", 3),),
        (make_job("a", 1, 1, on="n1 n1"), make_job("b", 1, 2, on="n1")),
        {"a": "m0 -w0", "b": "m0 ~w0@n1"},
    ),
}

TAKING = {
    "a newcomer's minimum takes the surplus of a running job": Case(
        (make_node("n1", 3),),
        (make_job("a", 1, 3, on="n1 n1 n1", age=9), make_job("b", 2)),
        {"a": "m0 -w1 -w0", "b": "~m0@n1 ~w0@n1"},
    ),
    "it takes no more than it needs, the highest index first": Case(
        (make_node("n1", 4),),
        (make_job("a", 1, 4, on="n1 n1 n1 n1"), make_job("b")),
        {"a": "m0 w0 w1 -w2", "b": "~m0@n1"},
    ),
    "it takes nothing while there is room": Case(
        TWO, (make_job("a", 1, 3, on="n1 n1"), make_job("b", 2)), {"a": "m0 w0", "b": "+m0@n2 +w0@n2"}
    ),
    "it takes nothing if its minimum would not fit even then": Case(
        (make_node("n1", 3),), (make_job("a", 2, 3, on="n1 n1 n1"), make_job("b", 2)), {"a": "m0 w0 w1", "b": ""}
    ),
    "it takes surplus of a higher priority too": Case(
        (make_node("n1", 2),),
        (make_job("a", 1, 2, on="n1 n1", priority=9), make_job("b")),
        {"a": "m0 -w0", "b": "~m0@n1"},
    ),
    "its victim is the last in the order of jobs": Case(
        (make_node("n1", 4),),
        (make_job("a", 1, 2, on="n1 n1", age=9), make_job("b", 1, 2, on="n1 n1", age=5), make_job("c")),
        {"a": "m0 w0", "b": "m0 -w0", "c": "~m0@n1"},
    ),
    "on a node that suits, a lower index goes rather than nothing": Case(
        (make_node("n1", 2, labels={"kind": "big"}), make_node("n2", 1)),
        (make_job("a", 2, 3, on="n1 n1 n2"), make_job("b", shape=make_shape(node_selector={"kind": "big"}))),
        {"a": "m0 w1 -w0", "b": "~m0@n1"},
    ),
    "the fewest pods go: one large rather than two small": Case(
        (make_node("n1", 2), make_node("n2", 3)),
        (
            make_job("a", 1, 2, on="n2 n2", master=make_shape(1), shape=make_shape(2), age=9),
            make_job("b", 0, sizes=(1, 2, 3), on="n9 n1 n1"),
            make_job("c", shape=make_shape(2)),
        ),
        {"a": "m0 -w0", "b": "m0 w0 w1", "c": "~m0@n2"},
    ),
    "a weaker pod beside the one that makes room is not counted in": Case(
        (make_node("n1", 3), make_node("n2", 2)),
        (
            make_job("x", 1, 4, on="n9 n1 n2 n2"),
            make_job("y", 1, 2, on="n9 n1", master=make_shape(1), shape=make_shape(2), age=9),
            make_job("c", shape=make_shape(2)),
        ),
        {"x": "m0 w0 w1 w2", "y": "m0 -w0", "c": "~m0@n1"},
    ),
    "a whole job of lower priority is preempted for a minimum": Case(
        TWO,
        (make_job("a", 4, on="n1 n1 n2 n2"), make_job("b", 3, priority=1)),
        {"a": "-w2 -w1 -w0 -m0", "b": "~m0@n2 ~w0@n2 ~w1@n1"},
    ),
    "a whole job of equal priority stays": Case(
        TWO, (make_job("a", 4, on="n1 n1 n2 n2"), make_job("b", 3, age=9)), {"a": "m0 w0 w1 w2", "b": ""}
    ),
    "surplus goes before a whole job": Case(
        (make_node("n1", 3),),
        (make_job("a", 1, 2, on="n1 n1", priority=1), make_job("b", on="n1"), make_job("c", priority=2)),
        {"a": "m0 -w0", "b": "m0", "c": "~m0@n1"},
    ),
    "the lowest priority goes first": Case(
        TWO,
        (make_job("a", on="n1", priority=1, age=1), make_job("b", on="n1"), make_job("c", 3, priority=2)),
        {"a": "m0", "b": "-m0", "c": "+m0@n2 +w0@n2 ~w1@n1"},
    ),
    "of two of one priority the younger goes": Case(
        (make_node("n1", 2),),
        (make_job("a", on="n1", age=1), make_job("b", on="n1", age=9), make_job("c", priority=2)),
        {"a": "-m0", "b": "m0", "c": "~m0@n1"},
    ),
    "of two of one priority the one that loses no work by a change gives pods first": Case(
        (make_node("n1", 4),),
        (
            make_job("a", 1, 2, on="n1 n1", age=9),
            make_job("b", 1, 2, on="n1 n1", age=1, resize_cost=1800.0),
            make_job("c", priority=2),
        ),
        {"a": "m0 -w0", "b": "m0 w0", "c": "~m0@n1"},
    ),
    "the lower priority gives pods first, although it loses work by a change": Case(
        (make_node("n1", 4),),
        (
            make_job("a", 1, 2, on="n1 n1", priority=1),
            make_job("b", 1, 2, on="n1 n1", resize_cost=1800.0),
            make_job("c", priority=2),
        ),
        {"a": "m0 w0", "b": "m0 -w0", "c": "~m0@n1"},
    ),
    "the younger of two whole jobs goes, although it alone loses work by a change": Case(
        (make_node("n1", 2),),
        (make_job("a", on="n1", age=9), make_job("b", on="n1", age=1, resize_cost=1800.0), make_job("c", priority=2)),
        {"a": "m0", "b": "-m0", "c": "~m0@n1"},
    ),
    "a preempted job keeps what it can if its minimum fits elsewhere": Case(
        (make_node("n1", 2, labels={"kind": "big"}), make_node("n2", 2)),
        (
            make_job("a", 2, on="n1 n1"),
            make_job("b", 1, shape=make_shape(node_selector={"kind": "big"}), priority=1),
        ),
        {"a": "m0 +w1@n2 -w0", "b": "~m0@n1"},
    ),
    "what a job below its minimum holds goes to a minimum that fits": Case(
        (make_node("n1", 2),), (make_job("a", 3, on="n1 n1", age=9), make_job("b")), {"a": "m0 -w0", "b": "~m0@n1"}
    ),
    "a job below its minimum gives its master last and then everything": Case(
        (make_node("n1", 2),),
        (make_job("a", 3, on="n1 n1", age=9), make_job("b", 2)),
        {"a": "-w0 -m0", "b": "~m0@n1 ~w0@n1"},
    ),
    "a job that lost pods gets them back from surplus": Case(
        (make_node("n1", 4),),
        (make_job("a", 2, on="n1"), make_job("b", 1, 3, on="n1 n1 n1")),
        {"a": "m0 ~w0@n1", "b": "m0 w0 -w1"},
    ),
    "an older job that comes back does not preempt a younger one of its priority": Case(
        (make_node("n1", 2),),
        (make_job("a", 2, age=9, holds=True), make_job("b", 2, on="n1 n1")),
        {"a": "", "b": "m0 w0"},
    ),
    "pods on a cordoned node are not taken for somebody else": Case(
        (make_node("n1", 2, cordoned=True),),
        (make_job("a", 1, 2, on="n1 n1"), make_job("b", priority=9)),
        {"a": "m0 w0", "b": ""},
    ),
    "taking one pod of two that go by size leaves the second's room to growth": Case(
        (make_node("n1", 4),),
        (make_job("a", sizes=(2, 4), on="n1 n1 n1 n1"), make_job("b", 1, 2)),
        {"a": "m0 w0 -w2 -w1", "b": "~m0@n1 ~w0@n1"},
    ),
    "a pod that was to go is kept if the one that took its room fits elsewhere in the end": Case(
        (make_node("n1", 1), make_node("n2", 5), make_node("n3", 1)),
        (
            make_job("v", 1, 2, on="n2 n2", master=make_shape(1), shape=make_shape(4), age=9),
            make_job("w", 1, 2, on="n3 n1", age=5),
            make_job("one", age=3),
            make_job("three", shape=make_shape(3), age=2),
        ),
        {"v": "m0 -w0", "w": "m0 w0", "one": "~m0@n2", "three": "~m0@n2"},
    ),
}

ALL = {**STARTING, **PLACES, **SIZES, **GROWTH, **TAKING}


@pytest.mark.parametrize("fact", ALL)
def test_rule(fact):
    case = ALL[fact]
    assert outcome(case.nodes, case.jobs) == case.expected


def test_a_delayed_job_says_when_to_look_again():
    granted = grants(TWO, [make_job("a", 1, 4, on="n1", free=1, may_grow_at=NOW + 5)])["a"]
    assert granted.requeue_at == NOW + 5


def test_a_failed_size_says_when_to_look_again():
    granted = grants(TWO, [make_job("a", 1, 4, on="n1", failed=FailedSize(2, NOW + 7))])["a"]
    assert granted.requeue_at == NOW + 7


def test_a_job_that_waits_for_room_waits_for_no_time():
    assert grants(TWO, [make_job("a", 5)])["a"].requeue_at == inf
