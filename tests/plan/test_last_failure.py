"""What failed last stays in the status, with what it printed last, when its pod is gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_api.status import LastFailure
from elastic_operator.plan.facts.job import LastOutput
from tests.plan.elastic.jobs import make_elastic_job, make_master, make_worker
from tests.plan.jobs import START, at, ended, group, make_grant, make_job, make_pod, plan, started

OUTPUT = LastOutput("toy-worker-0", 3, 1, ("loss is inf", "bad flag"))


def failed(pod, *, finished=90.0, last=OUTPUT, **main):
    """The pod, ended, and its log read."""
    pod = ended(pod, 1, finished=finished)
    return replace(pod, main=replace(pod.main, last_output=last, **main))


def last_of(planned):
    return planned.status.last_failure


def test_a_job_that_never_failed_has_none():
    assert last_of(plan(make_job(group(1), status=started()), make_grant(keep=["master-0", "worker-0"]))) is None


def test_the_last_failure_has_pod_time_and_cause_and_stays_when_the_pod_is_gone():
    pods = (make_pod("master-0"), failed(make_pod("worker-0")))
    first = plan(make_job(pods, status=started()), make_grant())
    last = last_of(first)
    assert (last.pod, last.rank, last.exit_code, last.log_tail) == ("toy-worker-0", 1, 3, ["loss is inf", "bad flag"])
    assert last.time == at(90)
    assert last_of(plan(make_job((), status=first.status), make_grant(), now=300)) == last


def test_a_pass_that_sees_the_same_failure_again_changes_nothing():
    """Also where it is not known when the container ended: each pass has a time of its own."""
    for finished in (START + 90, None):
        pods = [make_master(), failed(make_worker(0))]
        pods[1] = replace(pods[1], main=replace(pods[1].main, finished_at=finished))
        first = plan(make_elastic_job(pods), make_grant(keep=["master-0"]), now=100)
        second = plan(make_elastic_job(pods, last=first.status), make_grant(keep=["master-0"]), now=150)
        assert last_of(second) == last_of(first) is not None


def test_a_failed_worker_of_an_elastic_job_leaves_its_last_lines_and_the_others_stay():
    pods = [make_master(), failed(make_worker(0), last=LastOutput("toy-worker-0", 137, None, ("step 7",)))]
    planned = plan(make_elastic_job(pods), make_grant(keep=["master-0"], create=["worker-1"]))
    assert (last_of(planned).exit_code, last_of(planned).log_tail) == (137, ["step 7"])
    assert planned.status.incarnation == 1


def test_a_pod_that_failed_because_of_another_does_not_take_its_place():
    consequence = LastOutput("toy-master-0", 1, 0, ("Connection closed by peer",))
    follower = failed(make_pod("master-0"), finished=80.0, last=consequence, is_consequence=True)
    both = (follower, failed(make_pod("worker-0")))
    first = plan(make_job(both, status=started()), make_grant())
    assert last_of(first).pod == "toy-worker-0"


def test_a_pod_that_lost_its_peer_waits_for_what_the_peer_has_to_say():
    """Its kubelet may be faster than that of the pod which failed first (165)."""
    consequence = LastOutput("toy-worker-0", 1, None, ("RendezvousConnectionError",))
    follower = failed(make_pod("worker-0"), finished=90.0, last=consequence, is_consequence=True)
    alone, keep = (make_pod("master-0"), follower), make_grant(keep=["master-0", "worker-0"])
    waits = plan(make_job(alone, status=started()), keep, now=91)
    assert (waits.status.incarnation, last_of(waits), waits.requeue_at) == (1, None, START + 95)
    cause = failed(make_pod("master-0"), finished=90.5, last=LastOutput("toy-master-0", 3, 1, ("bad flag",)))
    told = plan(make_job((cause, follower), status=waits.status), keep, now=92)
    assert (told.status.incarnation, last_of(told).log_tail) == (2, ["bad flag"])
    assert plan(make_job(alone, status=waits.status), keep, now=95).status.incarnation == 2


@pytest.mark.parametrize("finished", [None, 3700.0], ids=["not known when", "its clock is ahead"])
def test_where_the_time_of_the_failure_says_nothing_it_is_judged_at_once(finished):
    follower = failed(make_pod("worker-0"), finished=90.0, is_consequence=True)
    ended_at = None if finished is None else START + finished
    follower = replace(follower, main=replace(follower.main, finished_at=ended_at))
    job = make_job((make_pod("master-0"), follower), status=started())
    assert plan(job, make_grant(keep=["master-0", "worker-0"]), now=91).status.incarnation == 2


@pytest.mark.parametrize(("finished", "blamed"), [(91.0, "toy-worker-0"), (300.0, "toy-master-0")])
def test_nor_does_it_once_the_pod_to_blame_is_gone(finished, blamed):
    """Much later it has failed for a reason of its own."""
    known = LastFailure(time=at(90), pod="toy-worker-0", rank=1, exit_code=3)
    last = LastOutput("toy-master-0", 1, 0, ("Connection closed by peer",))
    master = failed(make_master(), finished=finished, last=last, is_consequence=True)
    job = make_elastic_job([master, make_worker(1)], last_failure=known)
    assert last_of(plan(job, make_grant(keep=["worker-1"]), now=301)).pod == blamed


@pytest.mark.parametrize("more", [{"disrupted": "evicted by the kubelet"}, {"deleting_since": START + 80}])
def test_a_pod_that_was_taken_away_is_no_failure(more):
    pods = (make_pod("master-0"), replace(failed(make_pod("worker-0")), grace_seconds=30.0, **more))
    assert last_of(plan(make_job(pods, status=started()), make_grant(keep=["master-0"]))) is None
