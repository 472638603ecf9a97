"""The minimum of a job is its smallest allowed size, which may be larger than `minReplicas`."""

from dataclasses import replace

from elastic_api.status import Retry, RetryCause
from elastic_operator.plan.job.observe import observe
from tests.plan.jobs import (
    START,
    at,
    group,
    make_grant,
    make_job,
    make_spec,
    make_status,
    plan,
    see,
)

SPEC = make_spec(minReplicas=2, maxReplicas=8, allowedReplicas=[4, 8])
QUOTA = "The API server takes no more pods of this job: exceeded quota. Wait."
FOUR = ["master-0", "worker-0", "worker-1", "worker-2"]


def test_a_job_whose_smallest_size_failed_lets_others_pass_until_it_is_tried_again():
    waits = Retry(reason="no room.", not_before=at(500), size=4, cause=RetryCause.UNSCHEDULABLE)
    job = make_job((), spec=SPEC, status=make_status(replicas=0, target_replicas=4, failed_size=waits))
    assert see(job, now=499).is_in_backoff
    assert not see(job, now=500).is_in_backoff


def test_pods_that_make_no_allowed_size_go_when_the_api_server_takes_no_more():
    seen = observe(make_job(group(2), spec=SPEC, status=make_status(replicas=3), pods_rejected=QUOTA), START + 100)
    assert (len(seen.to_delete), seen.members, seen.is_in_backoff) == (3, (), True)


def test_pods_that_make_no_allowed_size_go_when_no_more_can_be_made_before_an_edit():
    seen = observe(
        make_job(group(2), spec=SPEC, status=make_status(replicas=3), pods_rejected_until_edit="spec: odd."),
        START + 100,
    )
    assert (len(seen.to_delete), seen.members) == (3, ())


def test_a_job_starts_once_there_is_room_for_its_smallest_size():
    job = make_job((), spec=SPEC, status=make_status(target_replicas=0, replicas=0))
    grant = make_grant(create=FOUR)
    master, first, *others = grant.assignment.create
    later = (master, first, *(replace(slot, ready=False) for slot in others))
    partly = replace(grant, assignment=replace(grant.assignment, create=later))
    assert plan(job, partly).slots == ()
    assert len(plan(job, grant).slots) == 4


def test_a_job_below_its_smallest_size_does_not_run():
    job = make_job(group(2), spec=SPEC, status=make_status(target_replicas=4, replicas=3))
    planned = plan(job, make_grant(keep=FOUR[:3]))
    ready = next(condition for condition in planned.status.conditions if condition.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "Rendezvousing")
    assert "the minimum of 4 runs" in ready.message
    assert planned.status.running_since is None
