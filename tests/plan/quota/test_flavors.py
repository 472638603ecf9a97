"""Kinds of GPU: each is guaranteed, limited, shared and taken for itself."""

from __future__ import annotations

import pytest

from elastic_operator.plan.facts.allocation_inputs import AllocationSettings
from elastic_operator.plan.facts.node import Node
from elastic_operator.plan.facts.requirements import PodShape
from elastic_operator.plan.facts.team import Flavor, Quota
from tests.plan.allocate.world import GPU, make_job, make_node, make_shape, make_team
from tests.plan.quota.cases import Case, came_out, make_foreign_pod, on

SLICE = "nvidia.com/mig-1g.10gb"
OLD_AND_NEW = Flavor("old", node_selector={"gpu": "old"}), Flavor("new", node_selector={"gpu": "new"})
FLAVORS = {"settings": AllocationSettings(flavors=OLD_AND_NEW)}
FULL_AND_SLICE = Flavor("full"), Flavor("slice", resources=(SLICE,))
SLICES = {"settings": AllocationSettings(gpu_resources=(GPU, SLICE), flavors=FULL_AND_SLICE)}
OLD4 = make_node("old1", 4, labels={"gpu": "old"})
NEW4 = make_node("new1", 4, labels={"gpu": "new"})
BOTH4 = (OLD4, NEW4)


def job_of(flavor, name, low=1, high=None, *, team="a", gpus=1, **more):
    """A job that is kept to the nodes of one flavor."""
    shape = make_shape(gpus, node_selector={"gpu": flavor})
    return make_job(name, low, high, team=team, flavor=flavor, shape=shape, **more)


def team_of(name, *, old=0, new=0, **more):
    """A team with so many GPUs of each kind guaranteed."""
    return make_team(name, quotas={"old": Quota(old, **more), "new": Quota(new, **more)})


def sliced(name, full, slices):
    """A node with whole GPUs and with slices of GPUs."""
    return Node(name, {GPU: full, SLICE: slices, "cpu": 64000, "pods": 110})


def slice_job(name, low, high=None, **more):
    """A job whose pods use one slice each."""
    shape = PodShape({SLICE: 1, "cpu": 1000, "pods": 1}, gpus=1)
    return make_job(name, low, high, shape=shape, flavor="slice", **more)


CASES = {
    "a guarantee takes from those who borrow that kind, and leaves the other kind": Case(
        BOTH4,
        (team_of("a", old=2), team_of("b")),
        (
            job_of("old", "x", 2),
            job_of("old", "y", 1, 4, team="b", on=on("old1", 4)),
            job_of("new", "z", 1, 4, team="b", on=on("new1", 4)),
        ),
        {"x": "~m0@old1 ~w0@old1", "y": "m0 w0 -w2 -w1", "z": "m0 w0 w1 w2"},
        FLAVORS,
    ),
    "a guarantee of one kind is none of the other": Case(
        BOTH4,
        (team_of("a", new=4), team_of("b", old=4)),
        (job_of("old", "x", 2), job_of("old", "y", 1, 4, team="b", on=on("old1", 4))),
        {"x": "", "y": "m0 w0 w1 w2"},
        FLAVORS,
    ),
    "a limit holds for each kind by itself": Case(
        BOTH4,
        (make_team("a", quotas={"old": Quota(1, borrow_limit=0), "new": Quota(1, borrow_limit=2)}),),
        (job_of("old", "x", 1, 4), job_of("new", "y", 1, 4)),
        {"x": 1, "y": 3},
        FLAVORS,
    ),
    "a kind that the policy does not mention may be borrowed": Case(
        BOTH4,
        (make_team("a", quotas={"old": Quota(1, borrow_limit=0)}),),
        (job_of("old", "x", 1, 4), job_of("new", "y", 1, 4)),
        {"x": 1, "y": 4},
        FLAVORS,
    ),
    "fair shares are reckoned for each kind among those who want it": Case(
        BOTH4,
        (team_of("a"), team_of("b")),
        (job_of("old", "x", 1, 4), job_of("new", "y", 1, 4), job_of("old", "z", 1, 4, team="b")),
        {"x": 2, "y": 4, "z": 2},
        FLAVORS,
    ),
    "weights may differ from kind to kind": Case(
        BOTH4,
        (make_team("a", quotas={"old": Quota(weight=3), "new": Quota(weight=1)}), team_of("b")),
        (
            job_of("old", "w", 1, 4),
            job_of("new", "x", 1, 4),
            job_of("old", "y", 1, 4, team="b"),
            job_of("new", "z", 1, 4, team="b"),
        ),
        {"w": 3, "x": 2, "y": 1, "z": 2},
        FLAVORS,
    ),
    "idle GPUs of another kind are no capacity": Case(
        BOTH4,
        (team_of("a"), team_of("b")),
        (job_of("old", "x", 3), job_of("old", "y", 2, team="b", on=on("old1", 2))),
        {"x": "", "y": "m0 w0"},
        FLAVORS,
    ),
    "a higher priority preempts nothing of another kind": Case(
        BOTH4,
        (team_of("a"),),
        (
            job_of("old", "x", 4, on=on("old1", 4)),
            job_of("new", "y", 4, on=on("new1", 4)),
            job_of("new", "z", priority=1),
        ),
        {"x": 4, "y": 0, "z": 1},
        FLAVORS,
    ),
    "GPUs on a node of no kind count for nobody's limit": Case(
        (OLD4, make_node("odd1", 4, used=4, by="a")),
        (make_team("a", quotas={"old": Quota(4, borrow_limit=0)}),),
        (job_of("old", "x", 1, 4),),
        {"x": 4},
        FLAVORS,
    ),
    "GPUs on a node of no kind are nobody's share": Case(
        (OLD4, make_node("odd1", 4)),
        (team_of("a"), team_of("b")),
        (job_of("old", "x", 1, 4), job_of("old", "y", 1, 4, team="b")),
        {"x": 2, "y": 2},
        FLAVORS,
    ),
    "a job whose kind is not clear gets nothing": Case(
        BOTH4, (), (make_job("x", 1, 4, flavor="", flavor_problem="both suit"),), {"x": ""}, FLAVORS
    ),
    "a job whose kind is no longer clear keeps what it has": Case(
        BOTH4,
        (),
        (make_job("x", 1, 4, flavor="", flavor_problem="both suit", on="old1 new1"),),
        {"x": "m0 w0"},
        FLAVORS,
    ),
    "a foreign pod's use counts for the kind of its node": Case(
        (make_node("old1", 4, used=2, by="a", labels={"gpu": "old"}), NEW4),
        (team_of("a", old=3, new=3, borrow_limit=0),),
        (job_of("old", "x", 1, 4), job_of("new", "y", 1, 4)),
        {"x": 1, "y": 3},
        FLAVORS,
    ),
    "a foreign pod that waits gets a place of its kind only": Case(
        BOTH4,
        (team_of("a", new=1), team_of("b")),
        (
            job_of("old", "x", 1, 4, team="b", on=on("old1", 4)),
            job_of("new", "y", 1, 4, team="b", on=on("new1", 4)),
        ),
        {"x": "m0 w0 w1 w2", "y": "m0 w0 w1 -w2", "r": "new1 -y-w2"},
        {**FLAVORS, "foreign_pods": (make_foreign_pod(flavor="new"),)},
    ),
    "a parent's limit holds for each kind by itself": Case(
        BOTH4,
        (
            make_team("p", quotas={"old": Quota(4), "new": Quota(0, borrow_limit=0)}),
            make_team("a", quotas={"old": Quota(2), "new": Quota(2)}, parent="p"),
        ),
        (job_of("old", "x", 1, 4), job_of("new", "y", 1, 4)),
        {"x": 4, "y": 0},
        FLAVORS,
    ),
    "whole GPUs and slices on one node are two kinds": Case(
        (sliced("n1", 2, 4),),
        (make_team("a", quotas={"full": Quota(1, borrow_limit=0), "slice": Quota(3, borrow_limit=0)}),),
        (make_job("x", 1, 4, team="a", flavor="full"), slice_job("y", 1, 4, team="a")),
        {"x": 1, "y": 3},
        SLICES,
    ),
    "a guarantee of slices takes slices, though whole GPUs on the node are borrowed too": Case(
        (sliced("n1", 2, 4),),
        (make_team("a", quotas={"slice": Quota(2)}), make_team("b", quotas={})),
        (
            slice_job("x", 2, team="a"),
            slice_job("y", 1, 4, team="b", on=on("n1", 4), age=9),
            make_job("z", 1, 2, team="b", flavor="full", on="n1 n1"),
        ),
        {"x": 2, "y": 2, "z": 2},
        SLICES,
    ),
}


@pytest.mark.parametrize("fact", CASES)
def test_flavor(fact):
    assert came_out(CASES[fact]) == CASES[fact].expected
