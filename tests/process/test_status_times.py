"""Which clock a status was written on: counted from the steps of the clock and from statuses that were written anew."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_api.status import AvoidedNode, Change, Condition, JobStatus, Retry, Training
from elastic_operator.cluster import objects
from elastic_operator.cluster.clock import STEP_SECONDS
from elastic_operator.read.status_times import StatusTimes, moved, times_moved

HOUR = 3600
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def make_status(**fields) -> JobStatus:
    """A status in which every time is set, each to another moment."""
    minutes = (NOON + timedelta(minutes=i) for i in count())
    ready = Condition(type="Ready", status="True", reason="Running", last_transition_time=next(minutes))
    failed = Condition(type="Failed", status="False", reason="NotFailed", last_transition_time=next(minutes))
    given = {
        "start_time": next(minutes),
        "active_since": next(minutes),
        "completion_time": next(minutes),
        "last_resize_time": next(minutes),
        "running_since": next(minutes),
        "master_lost_time": next(minutes),
        "retry": Retry(reason="it failed", not_before=next(minutes)),
        "training": Training(step=7, last_updated_time=next(minutes)),
        "history": [Change(time=next(minutes), from_=i, to=i + 1, reason="ScaledUp") for i in range(2)],
        "conditions": [failed, ready],
        "avoided_nodes": [AvoidedNode(name="n1", until=next(minutes))],
        **fields,
    }
    return JobStatus(**given)


def dumped(status: JobStatus) -> dict:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def body(status: JobStatus | None = None) -> objects.CustomObject:
    meta = objects.CustomMeta(name="toy", uid="u", resource_version="1")
    return objects.CustomObject(metadata=meta, status=dumped(status) if status else {})


class Steps:
    """What is counted as the clock steps and the job is written."""

    def __init__(self, first: JobStatus | None = None):
        self.stepped, self.now = 0, body(first)
        self.times = StatusTimes(lambda: self.stepped)
        self.times.changed(None, self.now)

    def write(self, status: JobStatus) -> None:
        old, self.now = self.now, body(status)
        self.times.changed(old, self.now)

    @property
    def behind(self) -> int:
        return self.times.behind("u")


def test_every_time_of_a_status_is_moved_and_nothing_else():
    status = make_status()
    before, after = repr(dumped(status)), repr(dumped(moved(status, -90)))
    earlier = timedelta(seconds=90)
    assert len(RFC3339.findall(before)) == 13
    for was, became in zip(RFC3339.findall(before), RFC3339.findall(after), strict=True):
        assert datetime.fromisoformat(was) - datetime.fromisoformat(became) == earlier
    assert RFC3339.sub("", before) == RFC3339.sub("", after)


def test_a_status_without_times_is_moved_as_well():
    assert moved(JobStatus(), HOUR) == JobStatus()


@pytest.mark.parametrize("seconds", [-HOUR, -6, 0, 6, HOUR])
def test_a_status_written_anew_on_another_clock_is_known_by_its_times(seconds):
    assert times_moved(dumped(make_status()), dumped(moved(make_status(), seconds))) == seconds


def test_one_time_that_changed_is_no_other_clock():
    before = make_status()
    for after in (
        make_status(start_time=NOON + timedelta(hours=1)),
        make_status(completion_time=None, running_since=None, retry=None, history=[]),
        make_status(conditions=[c.model_copy(update={"last_transition_time": NOON}) for c in before.conditions[:1]]),
    ):
        assert times_moved(dumped(before), dumped(after)) == 0


def test_statuses_without_a_common_time_cannot_be_compared():
    assert times_moved({}, dumped(make_status())) is None


def test_a_status_is_behind_by_the_steps_since_it_was_written():
    steps = Steps(make_status())
    assert steps.behind == 0
    steps.stepped += HOUR
    assert steps.behind == HOUR
    steps.stepped -= 2 * HOUR
    assert steps.behind == -HOUR


def test_a_status_written_anew_is_behind_no_more():
    steps = Steps(make_status())
    steps.stepped += HOUR
    steps.write(moved(make_status(), HOUR))
    assert steps.behind == 0


def test_a_change_of_the_job_that_leaves_its_status_leaves_it_behind():
    steps = Steps(make_status())
    steps.stepped += HOUR
    steps.write(make_status())
    assert steps.behind == HOUR


def test_a_status_that_was_decided_on_before_the_step_and_written_after_it_is_behind():
    steps = Steps(make_status())
    steps.stepped += HOUR
    steps.write(make_status(last_resize_time=NOON + timedelta(hours=2), restarts=7))
    assert steps.behind == HOUR


def test_a_standby_that_sees_the_leader_write_anew_before_it_believes_the_step_counts_it_once():
    steps = Steps(make_status())
    steps.write(moved(make_status(), HOUR))
    steps.stepped += HOUR
    assert steps.behind == 0


def test_replicas_that_measure_a_step_differently_by_a_second_do_not_move_times_for_it():
    steps = Steps(make_status())
    steps.write(moved(make_status(), HOUR - 1))
    steps.stepped += HOUR
    assert steps.behind == 0


def test_a_job_s_first_status_is_written_on_the_present_clock():
    steps = Steps()
    steps.stepped += HOUR
    steps.write(make_status())
    assert steps.behind == 0


def test_a_job_that_is_gone_is_forgotten():
    steps = Steps(make_status())
    steps.times.changed(steps.now, None)
    assert not steps.times._written_at
    assert steps.behind == 0


@given(st.lists(st.tuples(st.sampled_from(["step", "write anew", "write"]), st.integers(-2 * HOUR, 2 * HOUR))))
def test_however_steps_and_writes_follow_each_other_a_status_moved_by_what_it_is_behind_is_right(
    history,
):
    true, written = make_status(), make_status()
    steps = Steps(written)
    for what, seconds in history:
        if what == "step" and abs(seconds) >= 6:
            steps.stepped += seconds
            true = moved(true, seconds)
        elif what == "write anew" and abs(steps.behind) >= 6:
            written = moved(written, steps.behind)
            steps.write(written)
        else:
            steps.write(written.model_copy(update={"restarts": written.restarts + 1}))
        off = moved(written, steps.behind).start_time - true.start_time
        assert abs(off) < timedelta(seconds=STEP_SECONDS)
