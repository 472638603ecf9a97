"""What would be undone right away is not done, and nobody loses a pod for it; all else is decided as before (143)."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from unittest.mock import patch

import pytest
from hypothesis import given

from elastic_operator.plan.allocation import rounds
from elastic_operator.plan.allocation.allocate import Allocator, allocate
from elastic_operator.plan.lookahead import (
    PATIENCE_SECONDS,
    TWO_MASTERS,
    LookaheadAllocator,
    carried_out,
    would_not_last,
)
from tests.plan.allocate.world import make_inputs, make_job, make_node, make_shape, make_team, notation
from tests.plan.allocate.worlds import SHAPES, shared_inputs
from tests.plan.quota.cases import make_foreign_pod


class Mistaken:
    """An allocator that takes green for entitled to half of what is red's."""

    def __init__(self):
        self._real = Allocator()

    def allocate(self, inputs):
        teams = tuple(make_team(team.name, 2 * (team.name != "blue")) for team in inputs.teams.listed)
        return self._real.allocate(replace(inputs, teams=replace(inputs.teams, listed=teams)))


def steady(now):
    """One whose first pass is that allocator's."""
    found = LookaheadAllocator()
    found._now = now
    return found


TEAMS = [make_team("red", 4), make_team("green", 0), make_team("gold", 2), make_team("blue", 0)]
HERE, THERE = {"zone": "here"}, {"zone": "there"}
OWNER = make_job("owner", 1, 4, on="n1 n1 n1 n1", team="red", shape=make_shape(node_selector=HERE))
PREEMPTOR = make_job("preemptor", 2, team="green", shape=make_shape(node_selector=HERE))


def world(*jobs):
    """Two nodes of 4 GPUs each; red is guaranteed 4 of them, gold 2."""
    nodes = [make_node("n1", 4, labels=HERE), make_node("n2", 4, labels=THERE)]
    return make_inputs(nodes, jobs, teams=TEAMS)


def test_who_would_lose_again_right_away_what_it_takes_gets_nothing_and_says_why():
    taken = Mistaken().allocate(world(OWNER, PREEMPTOR))
    assert notation(taken["owner"]) == "m0 w0 -w2 -w1"
    found = steady(Mistaken()).allocate(world(OWNER, PREEMPTOR))
    assert (notation(found["owner"]), notation(found["preemptor"])) == ("m0 w0 w1 w2", "")
    assert found["preemptor"].size_reason.code == "WouldNotLast"
    assert "The job would get 2 pods, and lose 2 of them at once" in found["preemptor"].message
    assert found.withheld.keys() == {"preemptor"}


def test_who_was_left_out_for_ten_seconds_is_served_as_it_comes():
    found, before = steady(Mistaken()), world(OWNER, PREEMPTOR)
    assert found.allocate(before).withheld.keys() == {"preemptor"}
    assert found.again_at_epoch == before.now + PATIENCE_SECONDS
    soon = replace(before, now=before.now + PATIENCE_SECONDS - 1)
    assert found.allocate(soon).withheld.keys() == {"preemptor"}
    late = found.allocate(replace(before, now=found.again_at_epoch))
    assert (late.withheld, notation(late["preemptor"])) == ({}, "~m0@n1 ~w0@n1")
    assert found.again_at_epoch == inf


def test_a_job_that_would_have_two_masters_is_left_out_for_ever():
    found = LookaheadAllocator()
    assert all(found._is_withheld("one", TWO_MASTERS, now) for now in (0.0, 5.0, 50.0, 500.0))


def test_others_get_what_is_theirs_in_the_same_pass():
    borrower = make_job("borrower", 1, 4, on="n2 n2 n2 n2", team="blue", shape=make_shape(node_selector=THERE))
    entitled = make_job("entitled", 2, team="gold", shape=make_shape(node_selector=THERE))
    found = steady(Mistaken()).allocate(world(OWNER, PREEMPTOR, borrower, entitled))
    assert found.withheld.keys() == {"preemptor"}
    assert (notation(found["borrower"]), notation(found["entitled"])) == ("m0 w0 -w2 -w1", "~m0@n2 ~w0@n2")


def test_a_job_never_gets_two_masters():
    inputs = world(make_job("one", 2, on="n1 n1", team="red"))
    first = allocate(inputs)
    assignment = first.assignment("one")
    extra = replace(assignment, create=allocate(world(make_job("one", 1, team="red"))).assignment("one").create)
    second = allocate(inputs)
    with patch.object(type(first), "assignment", lambda self, _: extra if self is first else assignment):
        assert would_not_last(inputs, first, second) == {"one": "The job would have two masters."}


@pytest.mark.parametrize("place", ["reserved", "nominated"])
def test_a_pod_of_others_that_has_come_holds_its_gpus_and_its_host_ports(place):
    port = frozenset({("", "TCP", 80)})
    waits = make_foreign_pod(shape=make_shape(host_ports=port), **{place: "n1"})
    inputs = make_inputs([make_node("n1", 4)], (), foreign_pods=(waits,))
    after = carried_out(inputs, allocate(inputs))
    (use,) = (node.used for node in after.nodes)
    assert (after.foreign_pods, use.requests["nvidia.com/gpu"], use.ports) == ((), 1, port)


def test_nothing_is_looked_at_twice_where_nobody_loses_anything():
    found, asked = LookaheadAllocator(), []
    found._next.allocate = asked.append
    found.allocate(world(make_job("one", 1, 4, team="red"), make_job("two", 1, on="n1", team="blue")))
    assert not asked


@given(shared_inputs(SHAPES))
def test_an_allocation_that_comes_out_again_is_left_as_it_is(inputs):
    plain, found = allocate(inputs), LookaheadAllocator().allocate(inputs)
    steady = not would_not_last(inputs, plain, allocate(carried_out(inputs, plain)))
    assert not steady or dict(found) == dict(plain)


@pytest.mark.parametrize("repetitions", [1, 8])
@given(inputs=shared_inputs(SHAPES))
def test_no_pod_is_preempted_for_a_change_that_would_be_undone_even_without_repeated_rounds(repetitions, inputs):
    with patch.object(rounds, "_MAX_REPETITIONS", repetitions):
        found = LookaheadAllocator().allocate(inputs)
        if found.has_shrinking_jobs:
            after = Allocator().allocate(carried_out(inputs, found))
            assert not would_not_last(inputs, found, after).keys() - found.withheld.keys()
