"""Evictions are counted as they are carried out, by who gets the room, and each for a minute."""

from __future__ import annotations

from math import inf

import pytest

from elastic_operator.loop.reclaim import eviction_limiter
from elastic_operator.loop.reclaim.eviction_limiter import LastMinute
from elastic_operator.plan.facts.eviction_limits import EVICTION_SECONDS, PreemptorKey
from tests.simulate.virtual_clock import VirtualClock

ONE, OTHER = PreemptorKey("red", "one"), PreemptorKey("blue", "other")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    clock = VirtualClock()
    monkeypatch.setattr(eviction_limiter, "time", clock)
    return clock


def test_what_has_gone_is_known_with_who_gets_the_room(clock: VirtualClock):  # noqa: ARG001 - it stands still
    known = LastMinute()
    assert known.count({"a": ONE, "b": ONE, "c": OTHER}) == 3
    assert known.evicted() == {"a": ONE, "b": ONE, "c": OTHER}


def test_a_repeated_eviction_counts_once_and_for_its_latest_preemptor(clock: VirtualClock):
    known = LastMinute()
    assert known.count({"a": ONE, "b": ONE}) == 2
    clock.passed += 10
    assert known.count({"a": OTHER}) == 0
    assert known.evicted() == {"a": OTHER, "b": ONE}
    clock.passed = EVICTION_SECONDS
    assert known.evicted() == {"a": OTHER}


def test_each_counts_for_a_minute_and_it_is_known_when_the_first_is_over(clock: VirtualClock):
    known = LastMinute()
    assert known.seconds_until_relief() == inf
    known.count({"a": ONE, "b": ONE})
    clock.passed += 10
    known.count({"c": OTHER})
    assert known.seconds_until_relief() == EVICTION_SECONDS - 10
    clock.passed = EVICTION_SECONDS
    assert known.evicted() == {"c": OTHER}
    clock.passed += 10
    assert known.evicted() == {}
    assert known.seconds_until_relief() == inf
