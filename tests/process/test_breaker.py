"""When too much would change hands, nothing does."""

from __future__ import annotations

import pytest

from elastic_operator.loop import reclaim
from elastic_operator.loop.reclaim import MINUTE, Breaker
from elastic_operator.settings import ReclaimSettings
from tests.simulate.moments import Moments


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Moments:
    clock = Moments()
    monkeypatch.setattr(reclaim, "time", clock)
    return clock


def breaker(*, at_once: int = 3, per_minute: int = 5) -> Breaker:
    return Breaker(ReclaimSettings(max_evictions_per_decision=at_once, max_evictions_per_minute=per_minute))


def test_as_many_as_allowed_may_go(clock: Moments):  # noqa: ARG001 - it stands still
    assert breaker().check(["a", "b", "c"]) is None


def test_more_at_once_stop_everything_and_the_message_names_the_setting(clock: Moments):
    stopped = breaker().check(["a", "b", "c", "d"])
    assert stopped is not None
    assert (stopped.reason, stopped.until) == ("TooManyEvictions", clock.passed + MINUTE)
    assert "4 pods" in stopped.message
    assert "maxEvictionsPerDecision allows 3" in stopped.message


def test_what_is_decided_again_counts_once(clock: Moments):
    known = breaker()
    for _ in range(10):
        clock.passed += 1
        assert known.check(["a", "b", "c"]) is None


def test_more_within_a_minute_stop_everything_until_the_first_are_a_minute_ago(clock: Moments):
    known = breaker()
    assert known.check(["a", "b", "c"]) is None
    clock.passed += 10
    stopped = known.check(["d", "e", "f"])
    assert stopped is not None
    assert stopped.until == MINUTE
    assert "maxEvictionsPerMinute allows 5" in stopped.message
    clock.passed = stopped.until
    assert known.check(["d", "e", "f"]) is None


def test_what_was_refused_was_not_counted(clock: Moments):
    known = breaker(at_once=5)
    assert known.check(["a", "b", "c", "d", "e", "f"]) is not None
    clock.passed += 1
    assert known.check(["a", "b", "c", "d", "e"]) is None
