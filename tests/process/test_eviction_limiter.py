"""Evictions are counted as they are carried out, by who gets the room, and each for a minute."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.loop.reclaim import eviction_limiter
from elastic_operator.loop.reclaim.eviction_limiter import EvictionLimiter, LastMinute
from elastic_operator.plan.allocation.check_evictions import EvictionLimitHit
from elastic_operator.plan.facts.eviction_limits import EVICTION_SECONDS, EvictionLimit, PreemptorKey
from elastic_operator.settings import ReclaimSettings
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


MOST = 10
SETTINGS = ReclaimSettings(max_evictions_per_decision=MOST, max_evictions_per_minute=MOST)


class Preemptors:
    """Preemptors that want so many evictions each. None of the pods is evicted while the test does not say so."""

    def __init__(self, **wanted: int) -> None:
        self.limiter = EvictionLimiter(SETTINGS)
        self.wanted = {PreemptorKey(name, name): pods for name, pods in wanted.items()}

    def decide(self) -> float:
        """Allocate within the limits, in the order of the names; returns the seconds until the next allocation."""
        limits, taken, over = self.limiter.eviction_limits(64), dict[str, PreemptorKey](), list[Any]()
        for who, pods in sorted(self.wanted.items()):
            left = MOST - limits.reserved_for_others_than(who) - len(taken) - len(limits.evicted_last_minute)
            if pods <= left:
                taken |= {f"{who.key}-{number}": who for number in range(pods)}
            else:
                over.append(
                    SimpleNamespace(preemptor=who, hit=EvictionLimitHit(EvictionLimit.PER_CLUSTER, pods, MOST, left))
                )
        self.served = set(taken.values())
        inputs = SimpleNamespace(eviction_limits=limits)
        allocation: Any = SimpleNamespace(inputs=inputs, evicted_for=taken, over_eviction_limit=tuple(over))
        return self.limiter.seconds_until_capacity(allocation)

    def settle(self) -> int:
        """Decide again as long as the next allocation is due at once; returns the number of allocations."""
        for number in range(1, 50):
            if self.decide() > 0:
                return number
        raise AssertionError("each allocation asks for another one at once")


def test_a_reservation_for_a_preemptor_that_is_gone_ends_at_once(clock: VirtualClock) -> None:
    preemptors = Preemptors(a=8, b=5)
    assert preemptors.decide() == EVICTION_SECONDS
    clock.passed += EVICTION_SECONDS
    assert preemptors.settle() == 1
    assert preemptors.served == {PreemptorKey("b", "b")}
    del preemptors.wanted[PreemptorKey("b", "b")]
    assert preemptors.decide() == 0.0
    assert not preemptors.served
    assert preemptors.settle() == 1
    assert preemptors.served == {PreemptorKey("a", "a")}


changes = st.tuples(st.sampled_from("abcd"), st.integers(0, MOST), st.sampled_from((0.0, 5.0, EVICTION_SECONDS)))


@given(happenings=st.lists(changes, max_size=30))
def test_the_allocations_at_one_moment_come_to_an_end(happenings: list[tuple[str, int, float]]) -> None:
    clock = VirtualClock()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(eviction_limiter, "time", clock)
        preemptors = Preemptors()
        for name, pods, seconds in happenings:
            preemptors.wanted |= {PreemptorKey(name, name): pods}
            if not pods:
                del preemptors.wanted[PreemptorKey(name, name)]
            clock.passed += seconds
            assert preemptors.settle() <= len("abcd") + 1
            assert preemptors.served or not preemptors.wanted
