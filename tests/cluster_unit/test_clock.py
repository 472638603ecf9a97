"""The API server's clock as its responses tell it: estimated, and followed through steps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.cluster.clock import SURE_SAMPLES, SURE_SECONDS, ServerClock

HOUR = 3600.0
BOTH_WAYS = pytest.mark.parametrize("step", [-HOUR, HOUR])


@dataclass
class World:
    """A server whose clock is `offset` ahead of the monotonic one, and a process that asks it something."""

    offset: float = 1e9
    now: float = 1e5
    trip: float = 0.02
    clock: ServerClock = field(init=False)

    def __post_init__(self):
        self.clock = ServerClock(monotonic=lambda: self.now)

    def ask(self, *, ahead: float = 0.0) -> None:
        """A request; it is answered by a server whose clock is `ahead` of the usual one's."""
        sent = self.now
        self.now += self.trip
        date = formatdate(int(self.now - self.trip / 2 + self.offset + ahead), usegmt=True)
        self.clock.sample(date, sent=sent, received=self.now)

    def ask_for(self, seconds: float, *, every: float = 1.0) -> None:
        """Requests until so many seconds have passed."""
        end = self.now + seconds
        while self.now < end:
            self.ask()
            self.now += min(every, max(0.0, end - self.now))


def test_before_the_first_response_the_local_clock_has_to_do():
    assert abs(ServerClock().time() - time.time()) < 60


@given(st.floats(1e9, 2e9), st.floats(0, 1e6), st.lists(st.floats(0.01, 100), min_size=1), st.floats(0, 0.5))
def test_the_estimate_is_never_off_by_more_than_a_second_and_the_round_trip(server, local, pauses, trip):
    clock = ServerClock()
    for pause in pauses:
        server, local = server + pause, local + pause
        clock.sample(formatdate(int(server), usegmt=True), sent=local - trip / 2, received=local + trip / 2)
        assert abs((local + clock.offset) - server) <= 1 + trip + 1e-3


def test_many_responses_close_in_on_the_server_s_clock():
    world = World()
    world.ask_for(80, every=0.377)
    assert abs(world.clock.offset - world.offset) < 0.05


def test_a_response_without_a_usable_date_says_nothing():
    world = World()
    world.ask()
    before = world.clock.offset
    world.clock.sample(None, sent=world.now, received=world.now)
    world.clock.sample("yesterday", sent=world.now, received=world.now)
    assert world.clock.offset == before


def test_a_late_response_widens_the_bounds_and_is_no_step():
    world = World()
    world.ask_for(20)
    before = world.clock.offset
    for _ in range(5):
        date = formatdate(int(world.now + world.offset), usegmt=True)
        world.clock.sample(date, sent=world.now, received=world.now + 60)
        world.now += 60
    assert world.clock.stepped == 0
    assert abs(world.clock.offset - before) < 1


@given(st.floats(-2e-3, 2e-3), st.integers(1, 60))
def test_a_drifting_clock_is_followed_without_a_step(drift, every):
    world = World()
    for _ in range(500):
        world.ask()
        world.now += every
        world.offset += every * drift
    world.ask()
    assert world.clock.stepped == 0
    assert abs(world.clock.time() - world.now - world.offset) < 1.2


@BOTH_WAYS
def test_a_step_is_believed_when_all_responses_over_some_seconds_agree(step):
    world = World()
    world.ask_for(20)
    before = world.clock.offset
    world.offset += step
    world.ask_for(SURE_SECONDS - 1, every=0.5)
    assert world.clock.offset == before
    world.ask_for(2)
    assert abs(world.clock.time() - world.now - world.offset) < 1.2
    assert world.clock.stepped == pytest.approx(step, abs=1)


@BOTH_WAYS
def test_few_responses_are_not_believed_however_long_it_takes(step):
    world = World()
    world.ask()
    world.offset += step
    for _ in range(SURE_SAMPLES - 1):
        world.ask()
        world.now += 60
    assert world.clock.stepped == 0
    world.ask()
    assert world.clock.stepped == pytest.approx(step, abs=1)


@BOTH_WAYS
def test_one_odd_date_changes_nothing(step):
    world = World()
    world.ask_for(20)
    before = world.clock.offset
    world.ask(ahead=step)
    world.ask_for(20)
    assert world.clock.stepped == 0
    assert abs(world.clock.offset - before) < 1


@given(st.lists(st.booleans(), min_size=50, max_size=100), st.floats(10, 2 * HOUR))
def test_of_two_servers_whose_clocks_differ_the_one_heard_first_counts(turns, difference):
    world = World()
    world.ask()
    for other in turns:
        world.ask(ahead=difference if other else 0.0)
        world.now += 1.0
        world.ask()  # neither is silent for long
        world.now += 1.0
        assert world.clock.stepped == 0
        assert abs(world.clock.time() - world.now - world.offset) < 1.2


def test_contradictions_that_contradict_each_other_are_no_step():
    world = World()
    world.ask()
    for i in range(60):
        world.ask(ahead=HOUR if i % 2 else -HOUR)
        world.now += 1.0
    assert world.clock.stepped == 0


@BOTH_WAYS
def test_a_clock_that_was_wrong_for_a_while_and_is_put_right_has_not_stepped_in_all(step):
    world = World()
    world.ask_for(20)
    world.offset += step
    world.ask_for(60)
    assert world.clock.stepped == pytest.approx(step, abs=1)
    world.offset -= step
    world.ask_for(60)
    assert world.clock.stepped == pytest.approx(0, abs=1)
    assert abs(world.clock.time() - world.now - world.offset) < 1.2
