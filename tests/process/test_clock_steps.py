"""What a step of the API server's clock does to what was seen before it: no node is lost by it, and no pod goes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from elastic_operator.cluster.clock import ServerClock
from elastic_operator.plan.facts.job import MainContainer
from elastic_operator.read import first_seen
from elastic_operator.read.first_seen import LATE_NEWS_SECONDS, MAX_KEPT, FirstSeen
from tests.plan.jobs import make_pod
from tests.process.test_planner import START, STATUSES, World, cut_off, lost_and_kept

HOUR = 3600.0
BOTH_WAYS = pytest.mark.parametrize("step", [HOUR, -HOUR])


def steps(world: World, by: float) -> None:
    """The clock does, and the operator has noticed."""
    world.now += by
    world.clock.stepped += int(by)
    world.stored.forget()
    world.planner.forget()


@BOTH_WAYS
def test_a_node_that_is_not_ready_is_lost_after_its_own_time(step):
    world = cut_off(1)
    world.time_passes(20.0)
    assert lost_and_kept(world) == (set(), set())
    steps(world, step)
    world.time_passes(19.0)
    assert lost_and_kept(world) == (set(), set())
    world.time_passes(1.0)
    assert lost_and_kept(world) == ({"n0"}, set())


def test_a_node_that_is_not_ready_since_a_time_in_the_future_is_so_since_it_was_seen():
    world = cut_off(0)
    world.node("n0", 4, True, False)
    world.look()
    world.node("n0", 4, False, False, since=world.now + HOUR)
    world.look()
    world.time_passes(39.0)
    assert lost_and_kept(world) == (set(), set())
    world.time_passes(1.0)
    assert lost_and_kept(world) == ({"n0"}, set())


@BOTH_WAYS
def test_nodes_that_went_at_once_have_five_minutes_to_come_back(step):
    world = cut_off(6)
    for index in range(1, 6):
        world.node(f"n{index}", 4, True, False)
    world.time_passes(200.0)
    assert lost_and_kept(world) == (set(), {"n0"})
    steps(world, step)
    world.time_passes(299.0)
    assert lost_and_kept(world) == (set(), {"n0"})
    world.time_passes(1.0)
    assert lost_and_kept(world) == ({"n0"}, set())


@BOTH_WAYS
def test_a_pod_that_the_scheduler_cannot_place_is_taken_back_after_its_own_time(step):
    world = World()
    world.job("second", 3, STATUSES[2], "")
    world.pod("second", "master-0", "", "Pending", False, True)
    world.look()
    world.time_passes(30.0)
    steps(world, step)
    world.time_passes(29.0)
    assert world.look().obs["uid-second"].members
    world.time_passes(1.0)
    assert not world.look().obs["uid-second"].members


@BOTH_WAYS
def test_a_master_that_is_away_is_so_for_as_long_as_before(step):
    world = World()
    gone = datetime.fromtimestamp(START - 10, UTC)
    world.job("second", 3, {**STATUSES[2], "masterLostTime": gone.isoformat()}, "")
    world.look()
    steps(world, step)
    assert world.look().obs["uid-second"].job.status.master_lost_time == gone + timedelta(seconds=step)


class Seeing:
    """What is seen of one pod, by a process that has looked before."""

    def __init__(self) -> None:
        self.now = START
        self.clock = ServerClock(monotonic=lambda: self.now)
        self.clock.offset = 0.0
        self.first_seen = FirstSeen(self.clock)
        self.first_seen.begin_pass()

    def steps(self, by: float) -> None:
        """The clock does."""
        self.now += by
        self.clock.stepped += int(by)

    def age(self, written: float) -> float:
        """How long ago that was."""
        return self.now - self.first_seen.since("uid", written)


@BOTH_WAYS
def test_a_time_that_was_seen_before_a_step_keeps_its_age_and_one_of_after_it_has_its_own(step):
    seen = Seeing()
    assert seen.age(START - 10) == 10
    seen.steps(step)
    assert seen.age(START - 10) == 10
    assert seen.age(START + step - 5) == 5
    seen.steps(-step)
    assert (seen.age(START - 10), seen.age(START + step - 5)) == (10, 5)


def test_a_time_in_the_future_counts_from_when_it_is_first_seen():
    seen = Seeing()
    assert seen.age(START + HOUR) == 0
    seen.now += HOUR + 1
    assert seen.age(START + HOUR) == HOUR + 1


def test_a_process_believes_old_times_at_its_first_look_only():
    seen = Seeing()
    assert seen.age(START - HOUR) == HOUR
    seen.first_seen.begin_pass()
    assert seen.age(START - 2 * HOUR) == 0
    assert seen.age(START - LATE_NEWS_SECONDS + 1) == LATE_NEWS_SECONDS - 1


@pytest.mark.parametrize("written", [START, None], ids=["the API server's time", "no time"])
@pytest.mark.parametrize("gated", [10.0, HOUR])
def test_a_pod_whose_gates_went_is_unschedulable_since_then(written, gated):
    """Kubernetes keeps the condition's time, because its status stays False: it says when the pod was created."""
    seen = Seeing()
    waiting = replace(make_pod(phase="Pending", bound=False), gates=("example.com/quota",))
    assert seen.first_seen.of_pod(waiting).unschedulable_since is None
    seen.now += gated
    seen.first_seen.begin_pass()
    open_ = replace(waiting, gates=(), unschedulable="no room", unschedulable_since=written)
    assert seen.first_seen.of_pod(open_).unschedulable_since == START + gated
    seen.now += 7
    assert seen.first_seen.of_pod(open_).unschedulable_since == START + gated


def test_a_pod_is_unschedulable_since_the_scheduler_s_last_error():
    """The status stays False, and so does its time."""
    seen = Seeing()
    failed = replace(make_pod(phase="Pending", bound=False), scheduler_error="timed out")
    seen.first_seen.of_pod(failed)
    seen.now += HOUR
    seen.first_seen.begin_pass()
    refused = replace(failed, scheduler_error="", unschedulable="no room", unschedulable_since=START)
    assert seen.first_seen.of_pod(refused).unschedulable_since == START + HOUR


def test_a_new_leader_counts_from_its_first_look_if_a_pod_says_nothing():
    seen = Seeing()
    waiting = make_pod(phase="Pending", bound=False, unschedulable="no room", unschedulable_since=None)
    assert seen.first_seen.of_pod(waiting).unschedulable_since == START


def test_a_pod_whose_times_are_as_written_stays_the_same_object():
    """An unchanged job is the identical object, and is found so at little cost if its pods are (23)."""
    seen = Seeing()
    starts = make_pod(
        phase="Pending", created=START - 9, bound_since=START - 5, main=MainContainer(waiting_since=START)
    )
    assert all(seen.first_seen.of_pod(starts) is starts for _ in range(2))
    refused = replace(starts, bound=False, bound_since=None, unschedulable="no room", unschedulable_since=None)
    corrected = seen.first_seen.of_pod(refused)
    seen.now += 7
    assert seen.first_seen.of_pod(refused) == corrected != refused


def test_the_memory_is_bounded_and_used_times_stay():
    """Many pods come and go while a node is not Ready: its time does not begin anew."""
    seen = Seeing()
    ages = {seen.age(START - HOUR)}
    seen.first_seen.begin_pass()
    for i in range(2 * MAX_KEPT):
        seen.first_seen.since(f"pod-{i}", START)
        if i % 1000 == 0:
            ages.add(seen.age(START - HOUR))
    assert len(seen.first_seen._seen) <= MAX_KEPT
    assert ages == {HOUR}


def test_the_newest_of_many_gated_pods_are_remembered(monkeypatch):
    monkeypatch.setattr(first_seen, "MAX_KEPT", 10)
    seen = Seeing()
    pods = [replace(make_pod(phase="Pending", bound=False), uid=f"pod-{i}", gates=("a",)) for i in range(12)]
    for number, pod in enumerate(pods):
        seen.first_seen.of_pod(pod)
        seen.now += 1
        seen.first_seen.begin_pass()
        open_ = replace(pod, gates=(), unschedulable="no room", unschedulable_since=START)
        assert seen.first_seen.of_pod(open_).unschedulable_since == START + number + 1


def test_running_pod_counts_as_deleted_after_a_clock_step():
    seen = Seeing()
    runs = make_pod("master-0", deleting_since=START + HOUR, main=MainContainer(running_since=START))
    ended = make_pod("master-0", deleting_since=START + HOUR, main=MainContainer(exit_code=0, finished_at=START + 9))
    assert seen.first_seen.of_pod(ended).main.finished_at == START + 9
    seen.first_seen.of_pod(runs)
    assert seen.first_seen.of_pod(ended).main.finished_at == START + 9
    seen.steps(HOUR)
    assert seen.first_seen.of_pod(ended).main.finished_at is None
