"""What holds of asking for nodes in any cluster, beside what holds of every allocation."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from elastic_operator.plan.allocation.allocate import Allocator, allocate
from tests.plan.allocate.worlds import autoscaled
from tests.plan.provision.places import with_pods_made
from tests.plan.quota.test_properties import check_limits

PASSES = 6


@given(autoscaled())
def test_nobody_loses_a_pod_to_a_job_whose_pods_wait_or_are_to_wait(snapshot):
    granted = allocate(snapshot)
    waiting = {job.uid for job in snapshot.jobs if job.provisioning_pods or _asks(granted[job.uid])}
    assert not waiting & {uid for grant in granted.values() for uid in grant.preemptors}


def _asks(grant):
    return any(slot.node is None for slot in grant.assignment.create)


@given(autoscaled())
def test_what_is_asked_for_passes_no_limit(snapshot):
    check_limits(snapshot, now=False)


@given(autoscaled())
def test_it_comes_to_rest(snapshot):
    for _ in range(PASSES):
        granted = allocate(snapshot)
        snapshot = with_pods_made(_left(snapshot), granted)
    granted = allocate(snapshot)
    assert not any(grant.assignment.create or grant.assignment.release for grant in granted.values())


@given(autoscaled())
def test_a_table_that_serves_again_decides_as_a_new_one(snapshot):
    allocator = Allocator()
    granted = allocator.allocate(snapshot)
    after = with_pods_made(_left(snapshot), {uid: granted[uid] for uid in granted})
    again = allocator.allocate(after)
    assert {uid: again[uid] for uid in again} == dict(allocate(after))


def _left(snapshot):
    """What was leaving has left."""
    return replace(snapshot, nodes=tuple(replace(node, leaving={}, leaving_by={}) for node in snapshot.nodes))
