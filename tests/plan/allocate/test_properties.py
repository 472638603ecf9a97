"""What holds of every allocation, whatever the cluster and the jobs are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.plan.allocation.accounts import Entitlement
from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.allocation.placement import place_all
from elastic_operator.plan.allocation.preemption.preempt import fill_back
from elastic_operator.plan.allocation.quota_refusal import Rule
from elastic_operator.plan.allocation.rounds import Admissions
from elastic_operator.plan.allocation.state import AllocationState
from tests.plan.allocate import worlds
from tests.plan.allocate.world import carried_out, make_shape
from tests.plan.allocate.worlds import autoscaled, shared_inputs, single_team_inputs

SHAPES = st.sampled_from([make_shape(1), make_shape(2), make_shape(0, cpu=2), make_shape(4), make_shape(1, cpu=3)])
CLUSTERS = {
    "one team": single_team_inputs(SHAPES),
    "teams": shared_inputs(worlds.SHAPES),
    "autoscaled pools": autoscaled(),
}
WITHOUT_POOLS = list(CLUSTERS)[:2]
in_any_cluster = pytest.mark.parametrize("clusters", CLUSTERS)


def loads(inputs, granted, *, now):
    """What each node would hold: now, with everything that still leaves; or soon, without it."""
    held = {n.name: Counter(n.used.requests) + Counter(n.leaving.requests if now else ()) for n in inputs.nodes}
    for job in inputs.jobs:
        grant = granted[job.uid]
        for member in job.members:
            if now or member.uid in grant.assignment.keep:
                held[member.node].update(member.requests)
        for slot in grant.assignment.create:
            if slot.node is not None and (slot.ready or not now):
                held[slot.node].update(job.shape.of(slot.role).requests)
    return held


@in_any_cluster
@given(st.data())
def test_no_node_is_promised_more_than_it_has_now_or_soon(clusters, data):
    inputs = data.draw(CLUSTERS[clusters])
    granted = allocate(inputs)
    for now in (True, False):
        for node in inputs.nodes:
            assert all(n <= node.allocatable[r] for r, n in loads(inputs, granted, now=now)[node.name].items()), now


@pytest.mark.parametrize("clusters", WITHOUT_POOLS)
@given(st.data())
def test_pods_are_only_created_on_usable_nodes(clusters, data):
    inputs = data.draw(CLUSTERS[clusters])
    usable = {n.name for n in inputs.nodes if n.ready and not n.unschedulable}
    assert all(slot.node in usable for grant in allocate(inputs).values() for slot in grant.assignment.create)


@given(single_team_inputs(SHAPES))
def test_members_are_kept_or_released(inputs):
    granted = allocate(inputs)
    for job in inputs.jobs:
        grant = granted[job.uid]
        assert sorted(grant.assignment.keep + grant.assignment.release) == sorted(m.uid for m in job.members)


@pytest.mark.parametrize("clusters", WITHOUT_POOLS)
@given(st.data())
def test_every_size_is_zero_or_allowed_or_below_the_minimum_with_nothing_new(clusters, data):
    inputs = data.draw(CLUSTERS[clusters])
    granted = allocate(inputs)
    for job in inputs.jobs:
        grant = granted[job.uid]
        masters = [m for m in job.members if m.role == "master" and m.uid in grant.assignment.keep]
        complete = masters or any(s.role == "master" for s in grant.assignment.create)
        if not (complete and grant.assignment.replicas in job.sizes):
            assert not grant.assignment.create
            assert grant.assignment.replicas < job.sizes[0] or not complete
            assert grant.assignment.replicas <= job.sizes[-1]


@given(single_team_inputs(SHAPES))
def test_new_workers_take_the_lowest_indices_that_no_pod_has(inputs):
    granted = allocate(inputs)
    for job in inputs.jobs:
        new = [s.index for s in granted[job.uid].assignment.create if s.role == "worker"]
        held = job.used_indices | {m.index for m in job.members if m.role == "worker"}
        assert new == [i for i in range(50) if i not in held][: len(new)]
        assert sum(s.role == "master" for s in granted[job.uid].assignment.create) <= 1


@given(single_team_inputs(SHAPES))
def test_a_master_only_goes_when_no_worker_stays_and_no_second_one_comes_to_it(inputs):
    granted = allocate(inputs)
    for job in inputs.jobs:
        grant = granted[job.uid]
        stays = [m.role for m in job.members if m.uid in grant.assignment.keep]
        goes = [m.role for m in job.members if m.uid in grant.assignment.release]
        assert not ("master" in goes and "worker" in stays)
        assert [*stays, *(slot.role for slot in grant.assignment.create)].count("master") <= 1


@in_any_cluster
@given(st.data(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(clusters, data, random):
    inputs = data.draw(CLUSTERS[clusters])
    lists = {"jobs": inputs.jobs, "nodes": inputs.nodes, "listed": inputs.teams.listed}
    mixed = {name: tuple(random.sample(things, len(things))) for name, things in lists.items()}
    mixed["teams"] = replace(inputs.teams, listed=mixed.pop("listed"))
    assert dict(allocate(replace(inputs, **mixed))) == dict(allocate(inputs))


def sizes_of(granted):
    return {uid: grant.assignment.replicas for uid, grant in granted.items()}


@given(single_team_inputs())
def test_what_was_carried_out_is_decided_again(inputs):
    first = allocate(inputs)
    second = allocate(carried_out(inputs, first))
    assert sizes_of(second) == sizes_of(first)
    assert not any(grant.assignment.create or grant.assignment.release for grant in second.values())


@given(single_team_inputs())
def test_while_pods_are_still_leaving_nothing_more_is_released_and_nothing_changes_size(inputs):
    first = allocate(inputs)
    second = allocate(carried_out(inputs, first, gone=False, only_ready=True))
    assert sizes_of(second) == sizes_of(first)
    assert not any(grant.assignment.release for grant in second.values())


@pytest.mark.parametrize("clusters", WITHOUT_POOLS)
@given(st.data())
def test_with_pods_of_all_shapes_it_comes_to_rest(clusters, data):
    inputs = data.draw(CLUSTERS[clusters])
    for _ in range(6):
        granted = allocate(inputs)
        if not any(grant.assignment.create or grant.assignment.release for grant in granted.values()):
            return
        inputs = carried_out(inputs, granted)
    raise AssertionError("still changing after six rounds without an outside change")


@given(single_team_inputs())
def test_no_minimum_takes_a_pod_that_it_does_not_need(inputs):
    """Give any one worker that was taken for a minimum back, and what was placed can no longer all be placed."""
    state = AllocationState(inputs)
    minima = Admissions(state)
    for entitlement in Entitlement:
        minima.serve(entitlement)
        fill_back(state)
    for entry in state.queues.entries:
        for member in list(state.released(entry)):
            may_use = not state.quota_refusal(entry, member.gpus, Rule.LIMIT)
            if entry.kept and entry.is_below_maximum and state.has_its_room(entry, member) and may_use:
                raise AssertionError(f"{member.uid} could stay without anything being moved")
            if entry.kept and entry.is_below_maximum:
                _assert_needed(state, entry, member)


def _assert_needed(state, entry, member):
    mark = state.journal.mark()
    placements = [(other, placement) for other in state.queues.entries for placement in other.placements]
    for other, placement in placements:
        state.unplace(other, placement)
    state.fill_back(entry, member)
    placed = all(place_all(state, other, [s.role]) for other, s in placements)
    state.journal.roll_back(mark)
    assert not placed, f"{member.uid} was taken needlessly"


@given(single_team_inputs(SHAPES))
def test_a_minimum_that_was_not_given_does_not_fit_into_what_is_left(inputs):
    granted = allocate(inputs)
    held = loads(inputs, granted, now=False)
    for job in inputs.jobs:
        if (
            granted[job.uid].assignment.replicas
            or not job.wants_pods
            or (job.failed is not None and job.sizes[0] >= job.failed.size)
        ):
            continue
        shapes = [job.shape.master] + [job.shape.worker] * (job.sizes[0] - 1)
        free = {n.name: Counter(n.allocatable) - held[n.name] for n in inputs.nodes if n.ready and not n.unschedulable}
        if job.shape.master is not job.shape.worker:
            shapes = shapes[:1] if job.sizes[0] == 1 else []
        assert not shapes or not all(_place(free, shape.requests) for shape in shapes)


def _place(free, requests):
    for room in free.values():
        if all(room[name] >= n for name, n in requests.items()):
            room.subtract(requests)
            return True
    return False
