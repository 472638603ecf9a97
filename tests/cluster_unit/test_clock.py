"""The API server's clock as its responses tell it: estimated, followed through steps, with the times of before."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.cluster.clock import (
    AHEAD_SECONDS,
    KEPT_ERAS,
    KEPT_TIMES,
    ROUNDING_SECONDS,
    SURE_SAMPLES,
    SURE_SECONDS,
    ServerClock,
)

HOUR = 3600.0
BOTH_WAYS = pytest.mark.parametrize("step", [-HOUR, HOUR])
TOLERANCE = 3.0
"""A time is cut to whole seconds, so is a step, and the estimate may be off by a second."""


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

    def written_now(self) -> float:
        """The time that the server writes into an object now."""
        return float(int(self.now + self.offset))

    def age(self, written: float, of: str = "pod") -> float:
        """What a time is taken for."""
        return self.clock.time() - self.clock.current(written, of)


def test_before_the_first_response_the_local_clock_has_to_do():
    assert abs(ServerClock().time() - time.time()) < 60


@given(st.floats(1e9, 2e9), st.floats(0, 1e6), st.lists(st.floats(0.01, 100), min_size=1), st.floats(0, 0.5))
def test_the_estimate_is_never_off_by_more_than_a_second_and_the_round_trip(server, local, pauses, trip):
    clock = ServerClock()
    for pause in pauses:
        server, local = server + pause, local + pause
        clock.sample(formatdate(int(server), usegmt=True), sent=local - trip / 2, received=local + trip / 2)
        assert abs(clock.at(local) - server) <= 1 + trip + 1e-3


def test_many_responses_close_in_on_the_server_s_clock():
    world = World()
    world.ask_for(80, every=0.377)
    assert abs(world.clock.at(0.0) - world.offset) < 0.05


def test_a_response_without_a_usable_date_says_nothing():
    world = World()
    world.ask()
    before = world.clock.at(0.0)
    world.clock.sample(None, sent=world.now, received=world.now)
    world.clock.sample("yesterday", sent=world.now, received=world.now)
    assert world.clock.at(0.0) == before


def test_a_late_response_widens_the_bounds_and_is_no_step():
    world = World()
    world.ask_for(20)
    before = world.clock.at(0.0)
    for _ in range(5):
        date = formatdate(int(world.now + world.offset), usegmt=True)
        world.clock.sample(date, sent=world.now, received=world.now + 60)
        world.now += 60
    assert world.clock.stepped == 0
    assert abs(world.clock.at(0.0) - before) < 1


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
    before = world.clock.at(0.0)
    world.offset += step
    world.ask_for(SURE_SECONDS - 1, every=0.5)
    assert world.clock.at(0.0) == before
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
    before = world.clock.at(0.0)
    world.ask(ahead=step)
    world.ask_for(20)
    assert world.clock.stepped == 0
    assert abs(world.clock.at(0.0) - before) < 1


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


def test_without_a_step_a_time_is_left_as_it_was_written():
    world = World()
    world.ask_for(20)
    for written in (0.0, 1e9, world.written_now() - 1e6, world.written_now() + 1e6):
        assert world.clock.current(written, "pod") == written


@BOTH_WAYS
def test_a_time_keeps_its_age_when_the_clock_steps(step):
    world = World()
    world.ask_for(10)
    old = world.written_now()
    world.ask_for(20)
    world.offset += step
    for seconds in range(100):
        world.ask_for(1)
        assert world.age(old) == pytest.approx(21 + seconds, abs=TOLERANCE)


@BOTH_WAYS
def test_a_time_written_right_after_a_step_is_new_before_the_step_is_believed_and_after(step):
    world = World()
    world.ask_for(2 * HOUR, every=10)
    world.ask()
    world.offset += step
    new = world.written_now()
    world.ask()
    for seconds in range(60):
        assert world.age(new) == pytest.approx(seconds, abs=TOLERANCE)
        world.ask_for(1)
    assert world.clock.stepped == pytest.approx(step, abs=1)


def test_a_time_stays_old_when_a_clock_set_back_shows_it_again():
    world = World()
    world.ask_for(2 * HOUR, every=10)
    old = world.written_now()
    world.ask_for(600, every=10)
    world.offset -= HOUR
    world.ask_for(60)
    assert world.age(old, of="a pod") == pytest.approx(660, abs=TOLERANCE)
    world.ask_for(HOUR - 60, every=10)
    assert world.written_now() > old
    assert world.age(old, of="a pod") == pytest.approx(HOUR + 600, abs=TOLERANCE)
    assert world.age(world.written_now(), of="a pod") == pytest.approx(0, abs=TOLERANCE)


def test_the_same_time_is_old_in_one_object_and_new_in_another():
    world = World()
    world.ask_for(2 * HOUR, every=10)
    written = world.written_now()
    world.ask_for(HOUR / 2, every=10)
    world.offset -= HOUR
    world.ask_for(20)
    assert world.age(written, of="an old pod") == pytest.approx(HOUR / 2 + 20, abs=TOLERANCE)
    world.ask_for(HOUR / 2 - 15, every=10)
    assert world.age(written, of="an old pod") == pytest.approx(HOUR + 5, abs=2 * TOLERANCE)
    assert world.age(written, of="a new pod") == pytest.approx(5, abs=2 * TOLERANCE)


@BOTH_WAYS
def test_a_clock_that_was_wrong_for_a_while_and_is_put_right_leaves_every_age_right(step):
    world = World()
    world.ask_for(HOUR / 2, every=10)
    before = world.written_now()
    world.ask_for(60)
    world.offset += step
    world.ask_for(60)
    meanwhile = world.written_now()
    world.ask_for(60)
    world.offset -= step
    world.ask_for(60)
    assert world.clock.stepped == pytest.approx(0, abs=1)
    assert world.age(before) == pytest.approx(240, abs=TOLERANCE)
    assert world.age(meanwhile) == pytest.approx(120, abs=TOLERANCE)
    world.ask_for(2 * HOUR, every=10)
    assert world.age(before) == pytest.approx(240 + 2 * HOUR, abs=TOLERANCE)
    assert world.age(meanwhile) == pytest.approx(120 + 2 * HOUR, abs=TOLERANCE)


def test_the_clock_of_a_node_may_be_a_little_ahead():
    world = World()
    world.ask_for(2 * HOUR, every=10)
    world.offset -= HOUR
    world.ask_for(60)
    assert world.age(world.written_now() + AHEAD_SECONDS - 1) == pytest.approx(1 - AHEAD_SECONDS, abs=TOLERANCE)


@BOTH_WAYS
def test_whoever_keeps_moved_times_sees_that_they_are_to_be_moved_anew(step):
    world = World()
    world.ask_for(20)
    seen = [world.clock.revision]
    world.offset += step
    world.ask()
    seen.append(world.clock.revision)
    world.ask_for(20)
    seen.append(world.clock.revision)
    world.ask_for(20)
    assert len(set(seen)) == 3
    assert world.clock.revision == seen[-1]


def test_what_is_remembered_of_steps_and_times_is_bounded():
    world = World()
    world.ask()
    for i in range(3 * KEPT_ERAS):
        for j in range(100):
            world.age(world.written_now() - j, of=f"pod-{i}")
        world.offset += HOUR if i % 2 else -HOUR
        world.ask_for(10)
    assert len(world.clock._eras) <= KEPT_ERAS
    assert {id(era) for era in world.clock._resolved.values()} <= {id(era) for era in world.clock._eras}
    for i in range(KEPT_TIMES + 100):
        world.clock.current(0.0, f"pod-{i}")
    assert len(world.clock._resolved) <= KEPT_TIMES


pauses = st.one_of(st.floats(20, 200), st.floats(20, 4 * HOUR))
steps = st.one_of(st.floats(10, 2 * HOUR), st.floats(-2 * HOUR, -10), st.sampled_from([HOUR, -HOUR]))


@dataclass
class Written:
    """A time, when and under which step it was written, and in which object."""

    time: float
    moment: float
    era: int
    of: str


@given(st.lists(st.tuples(pauses, st.lists(st.floats(0, 1), max_size=4), steps), min_size=1, max_size=6))
def test_through_any_history_of_steps_every_time_keeps_its_age(history):
    world, begun, times = World(), [(-1e9, 1e9)], []
    world.ask()
    for era, (pause, written_at, step) in enumerate(history):
        begin = world.now
        instants = sorted({begin + s for s in (*range(12), 13, pause - 0.5)} | {begin + f * pause for f in written_at})
        for instant in instants:
            world.now = max(world.now, instant)
            world.ask()
            if instant - begin in [f * pause for f in written_at]:
                times.append(Written(world.written_now(), world.now, era, f"pod-{len(times)}"))
            for known in times:
                if not comes_again_right_after_a_step(known, begun):
                    age = world.age(known.time, of=known.of)
                    per_step = TOLERANCE * max(1, era - known.era)
                    assert age == pytest.approx(world.now - known.moment, abs=per_step), known
        world.now = begin + pause
        world.offset += step
        begun.append((world.now, world.offset))


def comes_again_right_after_a_step(known: Written, begun: list[tuple[float, float]]) -> bool:
    """The one case without an answer: a step back makes it a time of about now."""
    later = begun[known.era + 1 :]
    near = AHEAD_SECONDS + ROUNDING_SECONDS + TOLERANCE
    return any(abs(known.time - offset - moment) <= near for moment, offset in later)
