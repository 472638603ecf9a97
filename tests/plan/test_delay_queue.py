"""What is due is found when it is due."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.memory import MIN_QUEUE, DelayQueue

TIMES = st.sampled_from((-inf, 1.0, 2.0, 3.0, 50.0, inf))
NAMES = st.sampled_from("abc")
CHANGES = st.one_of(st.tuples(NAMES, TIMES), st.tuples(NAMES, st.none()), st.tuples(st.none(), TIMES))


@given(st.lists(CHANGES, max_size=200))
def test_what_is_due_stays_so_until_another_time_is_set(changes: list[tuple[str | None, float | None]]) -> None:
    """A time is set, or (without a time) dropped, or (without a name) everything that is due by it is asked for."""
    queue, times = DelayQueue(), dict[str, float]()
    latest = -inf
    for name, at in changes:
        if name is None:
            assert at is not None
            latest = max(latest, at)
            due = queue.due(latest)
            assert sorted(due) == sorted(name for name, time in times.items() if time <= latest and time < inf)
        elif at is None:
            queue.drop(name)
            times.pop(name, None)
        else:
            queue.set(name, at)
            times[name] = at
        assert queue.next() == min(times.values(), default=inf)
        assert {name: queue.time_of(name) for name in "abc"} == {name: times.get(name, inf) for name in "abc"}
    assert len(queue._queue) <= 2 * len(times) + MIN_QUEUE + 1
