"""What is counted when a job's status was written: what the new one tells and the old one did not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_api.status import Change, Condition, JobStatus
from elastic_operator.metrics.changes import JobChanges, changes
from elastic_operator.plan.facts.times import seconds
from tests.plan.jobs import START, at, make_status

NOTHING = JobChanges()


def entry(reason="ScaledUp", *, before=1, after=2, time=10, **fields):
    return Change(time=at(time), from_=before, to=after, reason=reason, **fields)


def told(old, new, *, created=0):
    return changes(old, new, created=START + created)


def condition(kind, value, since):
    return Condition(type=kind, status=value, reason="Because", last_transition_time=at(since))


def waiting(since=5, *, suspended=False):
    return make_status(
        target_replicas=0,
        conditions=[condition("Admitted", "False", since), condition("Suspended", str(suspended), since)],
    )


def admitted(since, *, resumed=5):
    return make_status(conditions=[condition("Admitted", "True", since), condition("Suspended", "False", resumed)])


def test_the_same_status_again_tells_nothing():
    status = make_status(restarts=3, resizes=4, history=[entry(pause_seconds=0.5, lost_steps=2)])
    assert told(status, status) == NOTHING


@pytest.mark.parametrize(
    ("reason", "before", "after", "direction"),
    [
        ("ScaledUp", 1, 2, "up"),
        ("ScaledDown", 2, 1, "down"),
        ("QuotaReclaimed", 3, 0, "down"),
        ("PreemptedByJob", 2, 1, "down"),
    ],
)
def test_a_planned_change_is_a_resize_in_its_direction(reason, before, after, direction):
    older = entry("Started", before=0, after=before, time=1)
    old, new = (
        make_status(history=[older]),
        make_status(resizes=1, history=[entry(reason, before=before, after=after), older]),
    )
    assert told(old, new).resizes == ((direction, reason),)


def test_a_start_a_suspension_and_a_size_that_follows_a_loss_are_no_resizes():
    start = make_status(history=[entry("Started", before=0)])
    suspended = make_status(history=[entry("Suspended", before=2, after=0), *start.history])
    assert told(make_status(), start) == told(start, suspended) == NOTHING
    assert told(start, make_status(history=[entry("ScaledDown", before=2, after=1), *start.history])) == NOTHING


def test_restarts_are_told_apart_by_what_the_history_says():
    old = make_status(restarts=1)
    both = make_status(restarts=5, history=[entry("PodLost", before=4, after=1)])
    assert (told(old, both).losses, told(old, both).failures) == (3, 1)
    assert told(old, make_status(restarts=2)).failures == 1


def test_losses_alike_that_follow_each_other_are_each_counted():
    first = entry("PodLost", before=4, after=3, time=10)
    old = make_status(restarts=1, history=[first])
    assert told(old, make_status(restarts=2, history=[entry("PodLost", before=4, after=3, time=40), first])).losses == 1


def test_what_a_change_cost_is_counted_when_it_becomes_known_and_not_again():
    old = make_status(history=[entry(time=20), entry(time=10, pause_seconds=9.0)])
    known = make_status(history=[entry(time=20, pause_seconds=0.5, lost_steps=3), *old.history[1:]])
    assert (told(old, known).pauses, told(old, known).lost_steps) == ((0.5,), 3)
    grown = make_status(resizes=1, history=[entry(before=2, after=3, time=30), *known.history])
    assert told(known, grown) == JobChanges(resizes=(("up", "ScaledUp"),))


def test_a_full_history_lets_the_oldest_go():
    old = make_status(resizes=20, history=[entry(before=1 + k % 2, time=100 - k) for k in range(20)])
    new = make_status(resizes=21, history=[entry(before=7, after=8, time=200), *old.history[:-1]])
    assert told(old, new).resizes == (("up", "ScaledUp"),)


def test_a_status_that_somebody_emptied_or_rewrote_takes_nothing_back():
    assert told(make_status(restarts=9, resizes=9, history=[entry()]), make_status()) == NOTHING
    assert told(make_status(history=[entry(message="x")]), make_status(history=[entry(before=5, after=6)])) == NOTHING


def test_a_job_has_waited_since_it_was_created_where_it_is_admitted_at_the_first_look():
    assert told(JobStatus(), admitted(3), created=1).queue_wait == 2


def test_a_job_has_waited_since_it_was_seen_waiting_or_resumed_or_gave_its_place_back():
    assert told(waiting(5), admitted(35), created=4).queue_wait == 30
    assert told(waiting(5, suspended=True), admitted(100, resumed=99)).queue_wait == 1
    gave_back = make_status(conditions=[condition("Admitted", "False", 200), condition("Suspended", "False", 5)])
    assert told(gave_back, admitted(260)).queue_wait == 60


def test_a_job_that_has_its_place_or_gets_none_has_not_waited():
    assert told(admitted(3), admitted(3)).queue_wait is None
    assert told(JobStatus(), waiting(5)).queue_wait is None


entries = st.builds(
    entry,
    st.sampled_from(["Started", "ScaledUp", "ScaledDown", "PodLost", "MasterLost", "Suspended", "Odd"]),
    before=st.integers(0, 5),
    after=st.integers(0, 5),
    time=st.integers(0, 3),
    pause_seconds=st.none() | st.floats(0, 10),
    lost_steps=st.none() | st.integers(0, 9),
)
statuses = st.builds(
    make_status,
    restarts=st.integers(0, 5),
    resizes=st.integers(0, 5),
    history=st.lists(entries, max_size=6),
    conditions=st.builds(
        lambda truth, since: [condition("Admitted", truth, since)],
        st.sampled_from(["True", "False"]),
        st.integers(0, 9),
    ),
)


@given(statuses, statuses)
def test_nothing_that_is_counted_is_ever_less_than_nothing(old, new):
    found = told(old, new)
    assert min(found.failures, found.losses, found.lost_steps, found.queue_wait or 0.0, *found.pauses, 0) == 0
    assert found.failures + found.losses == max(0, new.restarts - old.restarts)
    assert len(found.resizes) <= max(0, new.resizes - old.resizes)
    assert seconds(at(0)) == START
