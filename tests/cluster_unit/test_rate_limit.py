"""As many at once as a bucket holds, and then one by one as time goes by, for each key on its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.cluster.rate_limit import TokenBucket


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def taken(bucket, key="a"):
    """How many can be taken now."""
    count = 0
    while bucket.has(key):
        bucket.take(key)
        count += 1
    return count


def test_tokens_left_at_first_and_after_a_while(clock):
    bucket = TokenBucket(3, 5.0, now=clock)
    assert taken(bucket) == 3
    clock.now += 4.9
    assert taken(bucket) == 0
    clock.now += 0.2
    assert taken(bucket) == 1
    clock.now += 3600
    assert taken(bucket) == 3


def test_each_key_has_its_own(clock):
    bucket = TokenBucket(3, 5.0, now=clock)
    assert (taken(bucket, "a"), taken(bucket, "b"), taken(bucket, "a")) == (3, 3, 0)


def test_a_step_back_of_the_clock_costs_nothing(clock):
    bucket = TokenBucket(3, 5.0, now=clock)
    taken(bucket)
    clock.now -= 3600
    assert taken(bucket) == 0
    clock.now += 5
    assert taken(bucket) == 1


def test_only_full_buckets_are_forgotten(clock):
    bucket = TokenBucket(1, 5.0, now=clock)
    for key in ("a", "b"):
        taken(bucket, key)
        clock.now += 4
    bucket.forget_full()
    assert (taken(bucket, "a"), taken(bucket, "b")) == (1, 0)


@given(st.lists(st.floats(0, 20), max_size=60))
def test_never_more_than_the_first_and_one_for_each_interval(pauses):
    clock, count = Clock(), 0
    bucket = TokenBucket(4, 5.0, now=clock)
    for pause in pauses:
        clock.now += pause
        count += taken(bucket)
        bucket.forget_full()
    assert count <= 4 + (clock.now - Clock.now) / 5.0 + 1e-6
