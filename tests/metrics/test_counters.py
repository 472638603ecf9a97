"""What is counted as it happens: there from the start, at 0, and never less than before."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.cluster.store import Store
from elastic_operator.metrics import Metrics
from elastic_operator.metrics.changes import RESIZES, JobChanges
from elastic_operator.metrics.counters import WATCHED_KINDS
from elastic_operator.metrics.stats import OperatorStats
from elastic_operator.watches import watch_all
from tests.metrics.stats import of, parse, samples_of

KNOWN = [(direction, reason) for direction, reasons in RESIZES.items() for reason in reasons]


def test_every_value_of_a_label_that_is_known_before_is_there_from_the_start():
    found = samples_of()
    assert of(found, "restarts_total") == {("cause=failure",): 0, ("cause=loss",): 0}
    assert of(found, "resizes_total") == {(f"direction={d}", f"reason={r}"): 0 for d, r in KNOWN}
    for name in ("resize_pause_seconds", "queue_wait_seconds", "reclaim_seconds"):
        assert of(found, f"{name}_count") == {(): 0}
    for name in ("resize_lost_steps", "reclaim_requested_gpus", "reclaim_evicted_gpus", "events_dropped", "evictions"):
        assert of(found, f"{name}_total") == {(): 0}


def test_which_operator_it_is_is_told_by_each_replica():
    (labels, value), *more = of(samples_of(leads=False), "build_info").items()
    assert (value, more) == (1, [])
    assert {label.split("=")[0] for label in labels} == {"version", "contract", "python"}


def test_what_a_write_told_is_counted():
    metrics = Metrics()
    metrics.count_job(JobChanges((("down", "QuotaReclaimed"),), 1, 2, (0.4, 7.0), 3, queue_wait=12.0))
    found = parse(metrics.text(OperatorStats()))
    assert of(found, "resizes_total")["direction=down", "reason=QuotaReclaimed"] == 1
    assert of(found, "restarts_total") == {("cause=failure",): 1, ("cause=loss",): 2}
    assert (found["resize_pause_seconds_count",], found["resize_pause_seconds_sum",]) == (2, 7.4)
    assert (found["resize_lost_steps_total",], found["queue_wait_seconds_sum",]) == (3, 12.0)


def test_who_leads_no_more_says_so_and_counts_on():
    metrics = Metrics()
    metrics.leader.set(1)
    metrics.reservations.set(3)
    metrics.evictions.inc(2)
    metrics.stand_by()
    found = parse(metrics.text(OperatorStats()))
    assert [found[name,] for name in ("leader", "reservations", "evictions_total")] == [0, 0, 2]


def test_counters_have_no_series_of_their_birth():
    assert [name for name, *_ in samples_of() if name.endswith("_created")] == []


told = st.builds(
    JobChanges,
    resizes=st.lists(st.sampled_from(KNOWN), max_size=3).map(tuple),
    failures=st.integers(0, 3),
    losses=st.integers(0, 3),
    pauses=st.lists(st.floats(0, 1000), max_size=2).map(tuple),
    lost_steps=st.integers(0, 5),
    queue_wait=st.none() | st.floats(0, 1e6),
)


@given(st.lists(told, max_size=5))
def test_no_counter_ever_goes_down(writes):
    metrics = Metrics()
    before = parse(metrics.text(OperatorStats()))
    for write in writes:
        metrics.count_job(write)
        now = parse(metrics.text(OperatorStats()))
        counters = [key for key in before if key[0].endswith(("_total", "_count", "_sum", "_bucket"))]
        assert all(now[key] >= before[key] for key in counters)
        before = now


def test_errors_at_objects_of_each_watched_kind_have_a_counter_from_the_start():
    errors: list[str] = []
    informer = SimpleNamespace(store=Store())
    watches = watch_all(None, informer, watched=(), quotas=True, on_error=errors.append)
    for store in watches.stores.values():
        store.on_error()
    assert sorted(errors) == sorted(WATCHED_KINDS)
