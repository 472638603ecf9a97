"""What users read in the condition Ready of a job that waits: whole sentences, with what they can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_api.status import Retry, RetryCause
from elastic_operator.plan.facts.job import MainContainer
from elastic_operator.plan.job.lifecycle import MAX_WAITS_ENDED
from tests.plan.jobs import (
    START,
    at,
    ended,
    group,
    make_grant,
    make_job,
    make_pod,
    make_spec,
    make_status,
    plan,
    started,
)

WAITING = {"phase": "Pending", "bound": False, "main": MainContainer()}
NO_NODE = {**WAITING, "unschedulable": "0/3 nodes are available", "unschedulable_since": START + 190}
NO_IMAGE = MainContainer(waiting_reason="ErrImagePull", waiting_message="not found")
REFUSED = Retry(reason="The quota is full.", not_before=at(400), size=1, cause=RetryCause.FAILED_CREATE)
QUEUED = {"replicas": 0, "target_replicas": 0, "failed_size": REFUSED}
UNCOUNTED = Retry(reason="toy-worker-0 failed.", not_before=at(100), cause=RetryCause.POD_FAILED)

READY = {
    "a reason of Kubernetes has no period": (
        make_job((make_pod("master-0"), make_pod("worker-0", **NO_NODE)), status=make_status()),
        "1 of 2 pods runs. The scheduler finds no node for toy-worker-0: 0/3 nodes are available. Training waits until"
        " the minimum of 2 runs.",
    ),
    "two reasons": (
        make_job(
            (make_pod("master-0"), make_pod("worker-0", **NO_NODE), make_pod("worker-1", main=NO_IMAGE)),
            spec=make_spec(minReplicas=3),
            status=make_status(replicas=3, target_replicas=3),
        ),
        "1 of 3 pods runs. The scheduler finds no node for toy-worker-0: 0/3 nodes are available. toy-worker-1 cannot"
        " start: ErrImagePull: not found. Training waits until the minimum of 3 runs.",
    ),
    "an edit ends the back-off": (
        make_job((), status=make_status(**QUEUED)),
        "The quota is full. The operator retries at 2027-01-15T08:06:40Z, or at once after an edit of the job.",
    ),
    "edits end no further back-off": (
        make_job((), status=make_status(**QUEUED, waits_ended_by_edits=MAX_WAITS_ENDED)),
        "The quota is full. The operator retries at 2027-01-15T08:06:40Z.",
    ),
    "the last failure does not count": (
        make_job(status=started(retry=UNCOUNTED, failures=2)),
        "2 pods run with world size 2. The job has failed 2 times without progress, and ends at 3. The last failure"
        " was: toy-worker-0 failed.",
    ),
    "a mistake in its spec": (
        make_job((), status=make_status(replicas=0), invalid="spec.minReplicas: 0: must be at least 1"),
        "spec.minReplicas: 0: must be at least 1.",
    ),
}


@pytest.mark.parametrize("fact", READY)
def test_ready(fact):
    job, expected = READY[fact]
    grant = make_grant(keep=[pod.name.removeprefix("toy-") for pod in job.pods])
    assert plan(job, grant).status.condition("Ready").message == expected


def test_a_pod_that_failed_ends_the_job_with_whole_sentences():
    job = make_job((make_pod("master-0"), ended(make_pod("worker-0"), 1)), status=started(failures=2))
    expected = (
        "toy-worker-0 failed with exit code 1: boom. This is failure 3 in a row without progress, and"
        " recovery.maxFailuresWithoutProgress is 3."
    )
    assert plan(job, make_grant()).status.condition("Failed").message == expected


def test_a_failure_that_does_not_count_has_no_number():
    newcomer = replace(make_pod("worker-1"), created=START + 80, main=MainContainer(running_since=START + 90))
    job = make_job((*group(1)[:1], ended(make_pod("worker-0"), 1), newcomer), status=started(2))
    (event,) = [event for event in plan(job, make_grant()).events if event.reason == "NewIncarnation"]
    assert event.message == (
        "toy-worker-0 failed with exit code 1: boom. It does not count as a failure, because pods joined or left"
        " shortly before. All pods are replaced after 1 s."
    )
