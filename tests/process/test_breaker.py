"""Evictions are counted by who gets the room, and each for a minute."""

from __future__ import annotations

from math import inf

import pytest

from elastic_operator.loop import reclaim
from elastic_operator.loop.reclaim import MINUTE, Breaker
from elastic_operator.plan.model import Brakes
from tests.simulate.moments import Moments

LIMITS = (3, 5)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Moments:
    clock = Moments()
    monkeypatch.setattr(reclaim, "time", clock)
    return clock


def brakes(known: Breaker, *present: str) -> Brakes:
    return known.brakes(LIMITS, set(present))


def test_what_has_gone_counts_for_who_got_the_room_and_for_all(clock: Moments):  # noqa: ARG001 - it stands still
    known = Breaker()
    assert known.count({"one": ["a", "b"], "other": ["c"]}) == 3
    assert brakes(known) == Brakes(*LIMITS, gone_for={"one": 2, "other": 1}, gone=3)


def test_what_has_not_gone_yet_is_decided_on_again_and_does_not_count_beside(clock: Moments):  # noqa: ARG001
    known = Breaker()
    known.count({"one": ["a", "b"]})
    assert brakes(known, "a") == Brakes(*LIMITS, gone_for={"one": 1}, gone=1)


def test_what_is_decided_again_counts_once(clock: Moments):
    known = Breaker()
    assert known.count({"one": ["a", "b", "c"]}) == 3
    for _ in range(10):
        clock.passed += 1
        assert known.count({"one": ["a", "b", "c"]}) == 0
    assert brakes(known).gone == 3


def test_each_counts_for_a_minute_and_it_is_known_when_the_first_is_over(clock: Moments):
    known = Breaker()
    assert known.next_relief() == inf
    known.count({"one": ["a", "b"]})
    clock.passed += 10
    known.count({"one": ["c"]})
    assert known.next_relief() == MINUTE - 10
    clock.passed = MINUTE
    assert brakes(known) == Brakes(*LIMITS, gone_for={"one": 1}, gone=1)
    clock.passed += 10
    assert brakes(known) == Brakes(*LIMITS)
