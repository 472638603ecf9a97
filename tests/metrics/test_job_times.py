"""Where a job's time goes: by the reason of Ready, or by the account of a script that uses the library."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_api.status import Phase
from elastic_operator.metrics.job_times import OF_PART, OF_PHASE, TIME_KINDS, JobTimes
from elastic_operator.plan.facts.group_report import Goodput, GroupReport
from elastic_worker.library.goodput import PARTS


class Watch:
    """The times of one job, and a clock that the test moves."""

    def __init__(self):
        self.now = 1000.0
        self.times = JobTimes(lambda: self.now)

    def spend(self, seconds, phase, report=None):
        """The job is in that phase, with that report, and so many seconds go by."""
        self.times.note("job", phase, report)
        self.now += seconds

    def counted(self):
        return {kind: seconds for kind, seconds in self.times.seconds("job").items() if seconds}


def make_report(master="m", step=None, read_at=0.0, **parts):
    goodput = Goodput(0.5, parts) if parts else None
    return GroupReport(master_uid=master, read_at=read_at, generation=1, state="Running", step=step, goodput=goodput)


@pytest.mark.parametrize(("phase", "kind"), OF_PHASE.items())
def test_each_phase_is_time_of_one_kind(phase, kind):
    watch = Watch()
    watch.spend(10, phase)
    assert watch.counted() == {kind: 10}


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED, Phase.INVALID_SPEC, Phase.INTERNAL_ERROR, ""])
def test_a_job_that_has_ended_or_cannot_begin_spends_no_time(phase):
    watch = Watch()
    watch.spend(10, Phase.RUNNING)
    watch.spend(99, phase)
    assert watch.counted() == {"productive": 10}


def test_every_reason_of_ready_is_a_kind_or_is_known_to_be_none():
    assert set(Phase) - set(OF_PHASE) == {Phase.SUCCEEDED, Phase.FAILED, Phase.INVALID_SPEC, Phase.INTERNAL_ERROR}
    assert set(OF_PHASE.values()) | set(OF_PART.values()) == set(TIME_KINDS)


def test_every_part_of_the_librarys_account_is_a_kind_but_the_rest():
    assert set(PARTS) - set(OF_PART) == {"other"}


def test_each_second_counts_once_when_an_account_is_first_told():
    watch = Watch()
    watch.spend(20, Phase.STARTING)
    watch.spend(30, Phase.RUNNING, make_report())
    watch.spend(30, Phase.RUNNING, make_report(startup=15.0, productive=32.0))
    watch.spend(0, Phase.RUNNING, make_report(startup=15.0, productive=60.0, regroup=2.0))
    assert watch.counted() == {"startup": 20, "productive": 30 + 28, "reform": 2}


def test_an_account_that_begins_anew_is_another_processs_and_counts_as_a_whole():
    watch = Watch()
    watch.spend(30, Phase.RUNNING, make_report(productive=50.0))
    watch.spend(30, Phase.RUNNING, make_report(startup=4.0, productive=20.0))
    assert watch.counted() == {"startup": 4, "productive": 20}


def test_another_masters_account_begins_where_it_is_first_heard():
    watch = Watch()
    watch.spend(0, Phase.RUNNING, make_report(productive=50.0))
    watch.spend(7, Phase.RENDEZVOUSING)
    watch.spend(30, Phase.RUNNING, make_report(master="n", startup=3.0))
    watch.spend(0, Phase.RUNNING, make_report(master="n", startup=3.0, productive=30.0))
    assert watch.counted() == {"startup": 7, "productive": 30}


def test_waiting_is_seen_by_the_operator_whatever_was_told():
    watch = Watch()
    watch.spend(8, Phase.SUSPENDED, make_report(productive=50.0))
    assert watch.counted() == {"waiting": 8}


def test_a_step_that_does_not_move_is_no_progress():
    watch = Watch()
    assert watch.times.moved_at("job") is None
    watch.spend(0, Phase.RUNNING, make_report(step=5, read_at=10.0))
    watch.spend(0, Phase.RUNNING, make_report(step=5, read_at=40.0))
    assert watch.times.moved_at("job") == 10.0
    watch.spend(0, Phase.RUNNING, make_report(step=4, read_at=70.0))
    assert watch.times.moved_at("job") == 70.0


def test_a_master_that_begins_has_time_for_its_first_step():
    watch = Watch()
    watch.spend(0, Phase.RUNNING, make_report(step=5, read_at=10.0))
    watch.spend(0, Phase.SUSPENDED)
    assert watch.times.moved_at("job") is None
    watch.spend(0, Phase.RUNNING, make_report(master="n", read_at=900.0))
    watch.spend(0, Phase.RUNNING, make_report(master="n", read_at=930.0))
    assert watch.times.moved_at("job") == 900.0


def test_a_script_of_which_no_step_is_ever_told_does_not_stand_still():
    watch = Watch()
    watch.spend(0, Phase.RUNNING, make_report(read_at=10.0))
    assert watch.times.moved_at("job") is None


def test_a_job_that_is_gone_is_forgotten():
    watch = Watch()
    watch.spend(10, Phase.RUNNING, make_report(step=5))
    watch.times.forget_deleted({"another"})
    assert (watch.counted(), watch.times.moved_at("job")) == ({}, None)


seconds = st.floats(0, 1e6)
reports = st.none() | st.builds(
    lambda master, parts: make_report(master=master, **parts),
    st.sampled_from("mn"),
    st.dictionaries(st.sampled_from(PARTS), seconds, max_size=6),
)


@given(st.lists(st.tuples(seconds, st.sampled_from([*Phase, "", "Odd"]), reports), max_size=20))
def test_no_kind_ever_becomes_less(life):
    watch, before = Watch(), dict.fromkeys(TIME_KINDS, 0.0)
    for spent, phase, report in life:
        watch.spend(spent, phase, report)
        now = watch.times.seconds("job")
        assert all(now[kind] >= before[kind] for kind in TIME_KINDS)
        before = now
