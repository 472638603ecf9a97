import json
from dataclasses import replace
from itertools import pairwise

import pytest

from elastic_api.status import Retry, RetryCause
from elastic_operator.cluster.errors import Fenced, NameTaken, PodRefused, Unreachable, UnversionedConflict, api_error
from elastic_operator.loop.writes.failed_writes import EVENT_ATTEMPTS, MAX_RETRY_SECONDS, FailedWrites
from elastic_operator.memory import DirtySet
from tests.kit.requests import conflict
from tests.plan.jobs import at, make_job, make_status


def refused(status, message, reason):
    body = {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": status}
    return PodRefused(api_error(status, json.dumps(body).encode()), role="worker")


def a_job(generation=1):
    return replace(make_job(), uid="uid", generation=generation)


def after(*errors, generation=1):
    """The failed_writes of a job of that generation, all of them now."""
    failed_writes = FailedWrites(DirtySet())
    for error in errors:
        failed_writes.add(a_job(generation), error, NOW)
    return failed_writes


NOW = 100.0
FORBIDDEN = refused(403, "exceeded quota: pods=0", "Forbidden")


def test_the_wait_grows_with_each_try_up_to_its_limit():
    waits = [after(*[FORBIDDEN] * tries).failed_write("uid").wait(NOW) for tries in range(1, 15)]
    assert all(later > earlier for earlier, later in pairwise(waits[:7]))
    assert waits[-1] <= MAX_RETRY_SECONDS * 1.2


@pytest.mark.parametrize("seconds", ["3600", "9" * 400])
def test_a_gateway_that_names_an_hour_does_not_stop_a_job_s_writes_for_so_long(seconds):
    """Its deletions for others waited, too."""
    assert after(api_error(503, b"", retry_after=seconds)).failed_write("uid").wait(NOW) <= MAX_RETRY_SECONDS


def test_a_refused_pod_waits_as_long_as_the_server_asks():
    """The webhook of an overloaded server: nothing else is written for the job meanwhile, either."""
    overloaded = PodRefused(api_error(500, b"failed calling webhook", retry_after="7"), role="worker")
    record = after(overloaded).failed_write("uid")
    assert record.throttled_until == NOW + 7
    assert record.wait(NOW) >= 7


def test_a_job_without_trouble_waits_for_nothing():
    failed_writes = after(FORBIDDEN)
    assert failed_writes.failed_write("other").wait(NOW) == 0.0
    assert failed_writes.failed_write("other").feedback.write_error == ""


def test_success_ends_all_trouble():
    failed_writes = after(FORBIDDEN)
    assert "exceeded quota" in failed_writes.failed_write("uid").feedback.write_error
    assert "ResourceQuota raised" in failed_writes.failed_write("uid").feedback.pods_rejected
    failed_writes.clear(a_job())
    assert failed_writes.failed_write("uid").feedback.write_error == ""


def test_the_job_is_read_again_after_each_failure_and_after_the_success_that_ends_them():
    dirty_jobs = DirtySet[str | tuple[str, str]]()
    failed_writes, marked = FailedWrites(dirty_jobs), [dirty_jobs.take()]
    for _ in range(2):
        failed_writes.add(a_job(), FORBIDDEN, NOW)
        marked.append(dirty_jobs.take())
    for _ in range(2):
        failed_writes.clear(a_job())
        marked.append(dirty_jobs.take())
    assert marked == [None, {"uid"}, {"uid"}, {"uid"}, set()]


COUNTED = Retry(reason="x", not_before=at(10), attempt=1, size=2, cause=RetryCause.FAILED_CREATE)


@pytest.mark.parametrize(
    ("failed", "is_kept"),
    [
        pytest.param(COUNTED, False, id="it counts the refusal"),
        pytest.param(None, True, id="no size failed"),
        pytest.param(COUNTED.model_copy(update={"cause": RetryCause.UNSCHEDULABLE}), True, id="for another cause"),
    ],
)
def test_a_refusal_is_kept_until_a_status_that_counts_it_is_written(failed, is_kept):
    failed_writes, status = after(FORBIDDEN), make_status(failed_size=failed)
    job = replace(a_job(), feedback=failed_writes.feedback("uid", 1))
    failed_writes.note_status_written(job, status)
    record = failed_writes.failed_write("uid")
    assert (bool(record.feedback.pods_rejected), bool(record.feedback.write_error)) == (is_kept, True)
    assert record.wait(NOW) > 0


def test_a_refusal_is_kept_by_a_status_that_has_an_older_one_or_was_made_before_it():
    failed_writes, status = after(FORBIDDEN), make_status(failed_size=COUNTED)
    older = replace(a_job(), status=status, feedback=failed_writes.feedback("uid", 1))
    failed_writes.note_status_written(older, status)
    failed_writes.note_status_written(a_job(), status)
    assert failed_writes.failed_write("uid").feedback.pods_rejected


def test_what_only_an_edit_can_mend_is_refused_until_the_next_generation():
    failed_writes = after(refused(422, "spec.containers[0].image: Required value", "Invalid"), generation=3)
    assert "image" in failed_writes.feedback("uid", 3).pods_rejected_until_edit
    assert failed_writes.feedback("uid", 4).pods_rejected_until_edit == ""
    failed_writes.clear(a_job(3))
    assert "image" in failed_writes.feedback("uid", 3).pods_rejected_until_edit
    assert not failed_writes.failed_write("uid").wait(NOW)
    assert not failed_writes.backing_off(0.0), "it is read again with all others only"
    failed_writes.clear(a_job(4))
    assert not failed_writes.backing_off(0.0)


def test_an_admission_policy_may_let_the_next_try_pass():
    told = "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not on Sundays"
    failed_writes = after(refused(422, told, "Invalid"), generation=3)
    assert failed_writes.feedback("uid", 3).pods_rejected_until_edit == ""
    assert "Ask who wrote that admission policy" in failed_writes.failed_write("uid").feedback.pods_rejected


def test_a_quota_or_a_webhook_may_let_the_next_try_pass():
    webhook = refused(400, 'admission webhook "x" denied the request', "BadRequest")
    failed_writes = after(FORBIDDEN, webhook, generation=3)
    assert failed_writes.feedback("uid", 3).pods_rejected_until_edit == ""
    assert "Ask who runs that webhook" in failed_writes.failed_write("uid").feedback.pods_rejected


def test_a_taken_name_is_tried_again_soon():
    assert after(*[NameTaken("taken")] * 12).failed_write("uid").wait(NOW) < 3.0


def test_losing_the_lease_is_nothing_to_tell_users():
    assert after(Fenced("not leading")).failed_write("uid").feedback.write_error == ""


THROTTLED = api_error(429, b'{"reason": "TooManyRequests", "message": "slow down"}', retry_after="1")


CONTENDED = UnversionedConflict(conflict('resourcequotas "gpus"'), status=409)


@pytest.mark.parametrize("error", [THROTTLED, CONTENDED, api_error(503, b""), Unreachable("no answer")], ids=str)
def test_user_reads_an_error_that_may_pass_only_after_several_tries(error):
    """A healthy job would be Degraded for a second, and each such job would send two more writes to a busy server."""
    assert after(*[error] * (EVENT_ATTEMPTS - 1)).failed_write("uid").feedback.write_error == ""
    assert (
        after(*[error] * EVENT_ATTEMPTS).failed_write("uid").feedback.write_error
        == f"A write for this job failed: {error}. The operator retries."
    )


def test_error_that_may_pass_does_not_hide_one_that_a_person_must_mend():
    assert "exceeded quota" in after(FORBIDDEN, THROTTLED).failed_write("uid").feedback.write_error
