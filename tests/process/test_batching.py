"""Passes that wake each other for long become fewer; a single change, or a short chain of them, never waits."""

from __future__ import annotations

import pytest

from elastic_operator.loop.batching import (
    BACKED_UP_FACTOR,
    BACKED_UP_SECONDS,
    MAX_BACKED_UP_SECONDS,
    MAX_STORM_DELAY_SECONDS,
    STORM_FACTOR,
    STORM_SECONDS,
    Batching,
    longest_backed_up,
)

TOOK = 0.01


def rests(delay, *, passes, took=TOOK, since=100.0, woken=True):
    """What each of `passes` passes rests, each of which follows when the last one has rested."""
    found, now = [], since
    for _ in range(passes):
        now += 2 * took
        found.append(delay.delay(took, woken=woken, now=now))
        now += found[-1]
    return found


def calm(at=100.0):
    delay = Batching()
    delay.delay(TOOK, woken=False, now=at)
    return delay


def test_the_chain_of_passes_of_a_reclaim_never_rests():
    assert rests(calm(), passes=10) == [0.0] * 10


def test_in_a_storm_there_are_far_fewer_passes_in_the_same_time():
    before = round(STORM_SECONDS / (2 * TOOK))
    found = rests(calm(), passes=before + 10)
    assert set(found[: before - 1]) == {0.0}
    assert found[-9:] == [STORM_FACTOR * TOOK] * 9


def test_one_pass_that_nothing_woke_ends_the_storm():
    delay = calm()
    assert rests(delay, passes=100)[-1] > 0
    assert delay.in_storm
    assert rests(delay, passes=1, since=200.0, woken=False) == [0.0]
    assert not delay.in_storm
    assert rests(delay, passes=10, since=200.0) == [0.0] * 10


@pytest.mark.parametrize("took", [0.2, 2.0])
def test_long_passes_rest_no_longer_than_an_owner_can_wait(took):
    assert rests(calm(), passes=100, took=took)[-1] == MAX_STORM_DELAY_SECONDS


@pytest.mark.parametrize(
    ("took", "seconds"), [(TOOK, BACKED_UP_SECONDS), (1.0, BACKED_UP_FACTOR), (60.0, MAX_BACKED_UP_SECONDS)]
)
def test_the_longer_the_passes_the_longer_they_wait_for_queued_writes(took, seconds):
    assert longest_backed_up(took) == seconds
