"""What holds of asking for nodes in any cluster, beside what holds of every allocation."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from elastic_operator.plan.allocation.allocate import Allocator, allocate
from elastic_operator.plan.facts.node import NodeUse
from tests.plan.allocate.worlds import autoscaled
from tests.plan.provision.places import with_pods_made
from tests.plan.quota.test_properties import check_limits

PASSES = 6


@given(autoscaled())
def test_nobody_loses_a_pod_to_a_job_whose_pods_wait_or_are_to_wait(inputs):
    granted = allocate(inputs)
    waiting = {job.uid for job in inputs.jobs if job.provisioning_pods or _asks(granted[job.uid])}
    assert not waiting & {uid for grant in granted.values() for uid in grant.preemptors}


def _asks(grant):
    return any(slot.node is None for slot in grant.assignment.create)


@given(autoscaled())
def test_what_is_asked_for_passes_no_limit(inputs):
    check_limits(inputs, now=False)


@given(autoscaled())
def test_requests_for_nodes_come_to_rest(inputs):
    for _ in range(PASSES):
        granted = allocate(inputs)
        inputs = with_pods_made(_left(inputs), granted)
    granted = allocate(inputs)
    assert not any(grant.assignment.create or grant.assignment.release for grant in granted.values())


@given(autoscaled())
def test_a_table_that_serves_again_decides_as_a_new_one(inputs):
    allocator = Allocator()
    granted = allocator.allocate(inputs)
    after = with_pods_made(_left(inputs), {uid: granted[uid] for uid in granted})
    again = allocator.allocate(after)
    assert {uid: again[uid] for uid in again} == dict(allocate(after))


def _left(inputs):
    """What was leaving has left."""
    return replace(inputs, nodes=tuple(replace(node, leaving=NodeUse()) for node in inputs.nodes))
