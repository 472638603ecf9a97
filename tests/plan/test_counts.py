"""What a status counts before anybody has seen it: pods that were just made, and pods that are about to go (151)."""

from __future__ import annotations

import pytest

from elastic_api.status import MAX_LISTED_PODS
from elastic_operator.plan.facts.decisions import NewPods, Slot
from elastic_operator.plan.facts.job import MainContainer
from elastic_operator.plan.job.counts import with_created
from tests.plan.jobs import BOTH, START, group, make_grant, make_job, make_pod, plan, started


def creates(*indices):
    return NewPods(tuple(Slot("worker", index, "n1", True) for index in indices), 1, (2, 4096))


def test_new_pods_are_at_least_one():
    with pytest.raises(AssertionError):
        creates()


def phases(status):
    return {pod.name.removeprefix("toy-"): pod.phase for pod in status.pods}


def unplaced(name):
    return make_pod(name, phase="Pending", created=START + 200, bound=False, ready=False, main=MainContainer())


def test_after_pods_were_made_the_status_is_the_one_that_the_next_pass_would_write():
    before = plan(make_job(status=started()), make_grant(keep=["master-0", "worker-0"], create=["worker-1"]))
    pods = (*group(), unplaced("worker-1"))
    told = with_created(before.status, make_job(), before.creates, pods)
    grown = make_grant(keep=["master-0", "worker-0", "worker-1"])
    assert plan(make_job(pods=pods, status=told), grown).status == told
    assert told.replicas == 3


def test_a_pod_that_is_gone_already_counts_and_is_listed_so_that_its_loss_is_noticed():
    before = plan(make_job(status=started()), BOTH).status
    told = with_created(before, make_job(), creates(1), group())
    assert phases(told) == {"master-0": "Running", "worker-0": "Running", "worker-1": "Pending"}
    lost = plan(make_job(status=told), BOTH).status
    assert (lost.restarts, lost.history[0].reason) == (1, "PodLost")
    assert not lost.history[0].excused


def test_of_many_pods_the_first_are_listed_and_the_others_counted():
    before = plan(make_job(status=started()), BOTH).status
    told = with_created(before, make_job(), creates(*range(1, 100)), ())
    assert (told.replicas, len(told.pods), told.pods_not_listed) == (101, MAX_LISTED_PODS, 101 - MAX_LISTED_PODS)
    assert [pod.index for pod in told.pods[1:]] == list(range(MAX_LISTED_PODS - 1))


def test_a_worker_that_is_to_go_is_listed_as_such_in_the_status_that_says_so():
    job = make_job(pods=group(2), status=started(2))
    planned = plan(job, make_grant(keep=["master-0", "worker-0"], release=["worker-1"]))
    assert planned.write_status_first
    assert phases(planned.status) == {"master-0": "Running", "worker-0": "Running", "worker-1": "Terminating"}


def test_a_master_is_so_only_with_its_incarnation_as_its_number_is_in_use_until_then():
    job = make_job(status=started())
    whole = plan(job, make_grant(release=["master-0", "worker-0"]))
    assert phases(whole.status) == {"master-0": "Terminating", "worker-0": "Terminating"}
    moved = plan(job, make_grant(keep=["worker-0"], release=["master-0"], create=["master-0"], ready=False))
    assert phases(moved.status) == {"master-0": "Running", "worker-0": "Running"}
