"""Times of statuses after the API server's clock was set back: no wait lasts longer than it can."""

from __future__ import annotations

from datetime import timedelta
from math import inf

import pytest

from elastic_api.status import AvoidedNode, Change, JobStatus, Retry, RetryCause, Training
from elastic_api.what_if import ONCE, ONCE_SECONDS
from elastic_operator.attempts import AHEAD_SECONDS, NEVER_FAILED, lasts
from elastic_operator.plan.facts.times import not_later, seconds
from elastic_operator.plan.job.master_report import awaits_first_report
from elastic_operator.read.written_times import not_ahead
from tests.plan.elastic.jobs import make_elastic_job, make_group
from tests.plan.jobs import START, at, make_condition, make_job, make_spec, make_status, plan, see

NOW, HOUR = START + 100, 3600
PAST = (
    "start_time",
    "active_since",
    "completion_time",
    "last_resize_time",
    "running_since",
    "turn_started",
    "master_lost_time",
)


def retry(cause, attempt):
    return Retry(reason="x", not_before=at(100 + HOUR), cause=RetryCause(cause), attempt=attempt)


def status_at(time: float) -> JobStatus:
    """A status in which all that has happened did so at that time, in seconds after `START`."""
    change = Change(time=at(time), from_=0, to=2, reason="Started", message="")
    return make_status(
        history=[change, change],
        conditions=[make_condition("Ready", "True", time)],
        training=Training(step=1, last_updated_time=at(time)),
        **{name: at(time) for name in PAST},
    )


def test_a_status_whose_times_are_as_they_can_be_stays_the_same_object():
    for status in (JobStatus(), status_at(100), status_at(100 + AHEAD_SECONDS), status_at(-HOUR)):
        assert not_ahead(status, NOW) is status


def test_what_happened_in_the_future_happened_now():
    assert not_ahead(status_at(100 + HOUR), NOW) == status_at(100)


def test_of_a_row_of_changes_only_those_of_the_future_happened_now():
    new, old = (Change(time=at(time), from_=0, to=2, reason="Started", message="") for time in (HOUR, 50))
    history = not_ahead(make_status(history=[new, old]), NOW).history
    assert [change.time for change in history] == [at(100), at(50)]


@pytest.mark.parametrize(
    ("waits", "longest"),
    [
        (retry("PodFailed", 1), 2),
        (retry("PodLost", 3), 5),
        (retry("PodFailed", 30), 61),
        (retry("FailedCreate", 9), 450),
        (retry("Unschedulable", 3), 180),
        (retry("NodesNotProvisioned", 4), 360),
        (retry("PodsNotStarted", 1), 90),
    ],
)
def test_a_try_waits_no_longer_than_one_of_its_kind_can(waits, longest):
    field = "retry" if waits.cause in ("PodFailed", "PodLost") else "failed_size"
    found = getattr(not_ahead(make_status(**{field: waits}), NOW), field)
    assert seconds(found.not_before) == NOW + longest


def test_the_longest_wait_of_all_is_left_as_it_is():
    waits = Retry(reason="x", not_before=at(100 + 5400), attempt=9, size=2, cause=RetryCause.PODS_NOT_STARTED)
    status = make_status(failed_size=waits)
    assert not_ahead(status, NOW) is status


def test_an_avoided_node_and_a_held_job_are_let_go_in_time():
    node = AvoidedNode(name="n", until=at(100) + timedelta(hours=1), times=2, reason="x")
    status = not_ahead(make_status(avoided_nodes=[node], held_until=at(100 + HOUR)), NOW)
    assert (seconds(status.avoided_nodes[0].until), seconds(status.held_until)) == (NOW + 21, NOW + 600)
    empty = not_ahead(make_status(target_replicas=0, held_until=at(100 + HOUR)), NOW)
    assert seconds(empty.held_until) == NOW + 60


def test_a_time_is_cut_and_a_wait_is_over_where_it_lies_further_ahead_than_it_can():
    assert [not_later(time, 10.0) for time in (9.0, 10.0 + AHEAD_SECONDS, 11.0 + AHEAD_SECONDS)] == [9.0, 15.0, 10.0]
    assert [lasts(until, 60.0, 100.0) for until in (100.0, 101.0, 160.0, 200.0)] == [False, True, True, False]


def test_a_question_asked_once_does_not_outlive_its_time():
    status = make_status(target_replicas=0, replicas=0, start_time=None)
    asked = make_job((), spec=make_spec(suspend=True), status=status, what_if=ONCE, created=NOW)
    assert not plan(asked, now=100 + ONCE_SECONDS - 1).delete_job
    assert plan(asked, now=100 + ONCE_SECONDS).delete_job
    assert plan(asked, now=100 - HOUR).delete_job


def test_a_master_s_first_report_is_not_waited_for_until_the_clock_is_where_it_was():
    obs = see(make_elastic_job(make_group()), now=100)
    assert awaits_first_report(obs, START + 5)
    assert not awaits_first_report(obs, START + 5 - HOUR)


def test_backoff_doubles_to_its_limit_despite_retry_after():
    attempts, waits = NEVER_FAILED, []
    for _ in range(4):
        attempts = attempts.failed(100.0, 2.0, 10.0)
        waits.append(attempts.until - 100.0)
    assert (attempts.times, waits) == (4, [2.0, 4.0, 8.0, 10.0])
    assert NEVER_FAILED.failed(100.0, 2.0, 10.0, spread=0.5).until == 101.0
    asked = [NEVER_FAILED.failed(100.0, 2.0, 10.0, at_least=seconds).until for seconds in (1.0, 5.0, 3600.0, inf)]
    assert asked == [102.0, 105.0, 110.0, 110.0]
