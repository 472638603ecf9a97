"""How often waiting jobs hear where they stand, however many they are, and how estimates of starts are judged (161)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from elastic_api.status import QueuePosition, Training
from elastic_operator.loop.forecast import queue_positions
from elastic_operator.loop.forecast.queue_positions import (
    MAX_WRITES_AT_ONCE,
    PLACE_REFILL_SECONDS,
    PLACE_WRITE_SECONDS,
    REFRESH_SECONDS,
    STARTS_SECONDS,
    QueuePositions,
)
from elastic_operator.metrics import Metrics
from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.team import Teams
from elastic_operator.plan.facts.times import status_time
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.planner import PassDecisions
from elastic_operator.plan.policies.resolve import ResolvedPolicies
from tests.plan.allocate.world import NOW, make_inputs, make_job, make_node
from tests.plan.jobs import make_job as make_facts
from tests.plan.jobs import make_pod, make_status

GPUS = 8
RUNS = make_job("runs", GPUS, on=" ".join(["n1"] * GPUS), age=10_000)


def result_of(steps):
    """What all the steps come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class Life:
    """The positions, a clock, and what jobs hear."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0.0
        monkeypatch.setattr(queue_positions, "time", SimpleNamespace(monotonic=lambda: self.passed))
        self.metrics = Metrics()
        self.positions = QueuePositions(metrics=self.metrics)

    def look(self, jobs, *, left: float | None = None) -> list[str]:
        """Who hears of a place, if the line is looked at now and the running job ends that much later."""
        inputs = make_inputs([make_node("n1", GPUS)], jobs)
        obs = {"runs": _ending(left, NOW + self.passed)} if left is not None else {}
        now = NOW + self.passed
        decisions = PassDecisions(ResolvedPolicies(Teams()), obs, inputs, allocate(inputs), True, 0.0, None)
        if (steps := self.positions.refresh(decisions, now)) is not None:
            self.positions.note_estimates(result_of(steps))
        return self.positions.take_due(now)

    def live(self, jobs, seconds: float) -> list[str]:
        """Who hears while so much time passes; the line is looked at when it is due."""
        told, until = [], self.passed + seconds
        self.positions.moved = True
        while self.passed < until:
            if self.passed >= self.positions.next_at_monotonic():
                told += self.look(jobs)
            self.passed += REFRESH_SECONDS
        return told

    def ratios(self) -> tuple[float, float]:
        """How many estimates were judged, and the sum of what they came to."""
        samples = {s.name: s.value for m in self.metrics.start_estimate_ratio.collect() for s in m.samples}
        name = "elastic_pytorch_start_estimate_ratio"
        return samples[f"{name}_count"], samples[f"{name}_sum"]


def _ending(left: float, now: float):
    """The running job, whose script says so."""
    training = Training(estimated_remaining_seconds=int(left), last_updated_time=status_time(now))
    job = make_facts(uid="runs", status=make_status(training=training))
    return Observation(job, job.status, members=(make_pod(),))


def crowd(count: int):
    """So many jobs that wait, oldest first."""
    return [make_job(f"w{i:04}", 4, age=5000 - i) for i in range(count)]


def test_of_5000_jobs_the_front_of_the_line_is_written_first_and_few_at_a_time(monkeypatch) -> None:
    life, jobs = Life(monkeypatch), crowd(5000)
    assert life.look([RUNS, *jobs]) == [job.uid for job in jobs[:MAX_WRITES_AT_ONCE]]
    told = life.live([RUNS, *jobs], 300)
    assert len(told) <= 300 / PLACE_REFILL_SECONDS
    assert told == [job.uid for job in jobs[MAX_WRITES_AT_ONCE : MAX_WRITES_AT_ONCE + len(told)]]


def test_where_the_first_of_hundreds_starts_a_few_hear_of_it(monkeypatch) -> None:
    life, jobs = Life(monkeypatch), crowd(400)
    life.live([RUNS, *jobs], 600)
    assert life.live([RUNS, *jobs], 600) == []
    life.positions.note_started(jobs[0].uid, NOW + life.passed)
    assert len(life.live([RUNS, *jobs[1:]], 600)) == 10 - 1 + 9 + 3


def test_without_changes_and_waiting_jobs_nothing_is_due(monkeypatch) -> None:
    life = Life(monkeypatch)
    life.look([RUNS])
    assert life.positions.next_at_monotonic() == float("inf")
    life.look([RUNS, *crowd(1)])
    assert life.positions.next_at_monotonic() <= life.passed + STARTS_SECONDS


def test_an_estimate_is_told_again_only_where_it_is_another_one(monkeypatch) -> None:
    life, jobs = Life(monkeypatch), [RUNS, *crowd(1)]
    assert life.look(jobs, left=3600) == ["w0000"]
    first = life.positions.queue_position("w0000")
    assert (first.estimated_start_time, first.confidence) == (status_time(NOW + 3600), 1.0)
    life.passed = 70
    assert life.look(jobs, left=3600 + 100) == []
    life.passed = 140
    assert life.look(jobs, left=1800) == ["w0000"]
    assert life.positions.queue_position("w0000").estimated_start_time == status_time(NOW + 140 + 1800)


def test_each_estimate_is_compared_with_the_start(monkeypatch) -> None:
    life, jobs = Life(monkeypatch), [RUNS, *crowd(1)]
    life.look(jobs, left=1000)
    life.passed = 500
    life.look(jobs, left=2000)
    life.positions.note_started("w0000", NOW + 1500)
    assert life.ratios() == (2, 1500 / 1000 + 1000 / 2000)
    life.positions.note_started("w0000", NOW + 1500)
    assert life.ratios()[0] == 2


def test_an_error_at_one_place_keeps_no_other_place_from_its_status(monkeypatch) -> None:
    life, jobs = Life(monkeypatch), crowd(3)
    life.look([RUNS, *jobs])
    life.passed = PLACE_WRITE_SECONDS
    life.positions.note_estimates({"w0000": NOW + 600, "w0001": 4e11, "w0002": NOW + 900})
    assert life.positions.take_due(NOW + life.passed) == ["w0000", "w0002"]
    errors = [s.value for m in life.metrics.forecast_errors.collect() for s in m.samples if s.name.endswith("_total")]
    assert errors == [1]


def test_a_job_that_waits_no_more_loses_its_place_and_is_written_again(monkeypatch) -> None:
    life, jobs = Life(monkeypatch), [RUNS, *crowd(2)]
    life.look(jobs, left=600)
    place = life.positions.queue_position("w0000")
    assert life.positions.queue_position("other", written=place) is None, "it does not wait either"
    life.passed = REFRESH_SECONDS
    assert life.look([RUNS, *crowd(2)[1:]]) == ["w0000"]
    assert life.positions.queue_position("w0000", written=place) is None
    life.passed = 86_400
    life.positions.note_started("w0000", NOW + life.passed)
    assert life.ratios()[0] == 0


def test_a_job_that_gets_its_pods_is_judged_at_its_start_and_has_no_place_meanwhile(monkeypatch) -> None:
    life = Life(monkeypatch)
    life.look([RUNS, *crowd(1)], left=1000)
    life.passed = 500
    assert life.look(crowd(1)) == []
    assert life.positions.queue_position("w0000") is None
    life.positions.note_started("w0000", NOW + 500)
    assert life.ratios() == (1, 0.5)


def test_a_new_leader_leaves_places_as_they_are_written_until_it_has_looked(monkeypatch) -> None:
    life, place = Life(monkeypatch), QueuePosition(position=7)
    assert life.positions.queue_position("w0000", written=place) == place
    life.look([RUNS, *crowd(MAX_WRITES_AT_ONCE + 1)])
    assert life.positions.queue_position(f"w{MAX_WRITES_AT_ONCE:04}", written=place) == place
    assert life.positions.queue_position("other", written=place) is None
