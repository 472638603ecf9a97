"""When waiting jobs start: at the ends that are known, by the decisions of the allocator (161)."""

from __future__ import annotations

from dataclasses import replace

from elastic_api.status import Training
from elastic_operator.plan.allocation.allocate import Allocator, allocate
from elastic_operator.plan.facts.demand import FailedSize
from elastic_operator.plan.facts.times import status_time
from elastic_operator.plan.forecast.ends import known_ends
from elastic_operator.plan.forecast.starts import MAX_STEPS, confidence, start_times
from elastic_operator.plan.job.observation import Observation
from tests.plan.allocate.world import NOW, make_inputs, make_job, make_node, make_team
from tests.plan.jobs import make_job as make_facts
from tests.plan.jobs import make_pod, make_status

EIGHT = "n1 n1 n1 n1 n1 n1 n1 n1"
NODE = make_node("n1", 8)


def starts(inputs, ends, *waiting, steps=None):
    """The seconds from now until each of these starts; `steps` collects a word for each decision."""
    found = start_times(inputs, allocate(inputs), ends, waiting)
    while True:
        try:
            next(found)
        except StopIteration as end:
            return {uid: at - NOW for uid, at in end.value.items()}
        if steps is not None:
            steps.append("decided")


def world(*jobs, **more):
    """One node of 8 GPUs."""
    return make_inputs([NODE], jobs, **more)


def test_a_job_starts_at_the_end_that_makes_room_for_all_of_its_minimum():
    short, long = make_job("short", 2, on="n1 n1"), make_job("long", 6, on="n1 n1 n1 n1 n1 n1")
    ends = {"short": NOW + 60, "long": NOW + 600}
    small, large = make_job("small", 2, age=1), make_job("large", 4, age=2)
    assert starts(world(short, long, small), ends, "small") == {"small": 60}
    assert starts(world(short, long, large), ends, "large") == {"large": 600}
    assert starts(world(short, long, small, large), ends, "small", "large") == {"small": 60, "large": 600}


def test_jobs_before_it_in_line_are_served_first_and_run_on():
    runs = make_job("runs", 8, on=EIGHT)
    first, second, third = make_job("first", 5, age=3), make_job("second", 5, age=2), make_job("third", 3, age=1)
    found = starts(world(runs, first, second, third), {"runs": NOW + 60}, "first", "second", "third")
    assert found == {"first": 60, "third": 60}


def test_without_a_known_end_there_is_no_estimate_and_nothing_is_decided():
    steps = []
    runs, waits = make_job("runs", 8, on=EIGHT), make_job("waits", 2)
    assert starts(world(runs, waits), {}, "waits", steps=steps) == {}
    assert steps == []


def test_a_job_that_grows_meanwhile_ends_sooner():
    grows = make_job("grows", 4, 8, on="n1 n1 n1 n1", age=1)
    goes, waits = make_job("goes", 4, on="n1 n1 n1 n1", age=2), make_job("waits", 8)
    ends = {"goes": NOW + 100, "grows": NOW + 300}
    assert starts(world(goes, grows, waits), ends, "waits") == {"waits": 200}


def test_jobs_that_take_turns_start_at_the_end_of_a_turn():
    team = make_team("team-a", 8, quantum_seconds=300)
    runs, waits = make_job("runs", 8, on=EIGHT, running_since=NOW - 100), make_job("waits", 8, waiting_since=NOW)
    found = starts(world(runs, waits, teams=[team]), {"runs": NOW + 1000}, "waits")
    assert found == {"waits": 200}


def test_so_many_decisions_are_made_for_one_forecast_and_no_more():
    node = make_node("n1", 200)
    jobs = [make_job(f"j{i}", 1, on="n1") for i in range(100)]
    ends = {job.uid: NOW + 1000 * (index + 1) * 1.15**index for index, job in enumerate(jobs)}
    steps = []
    used = make_job("used", 100, on=" ".join(["n1"] * 100))
    inputs = make_inputs([node], [*jobs, used, make_job("waits", 80)])
    assert starts(inputs, ends, "waits", steps=steps) == {}
    assert len(steps) == MAX_STEPS


def test_a_forecast_agrees_with_the_life_that_it_foretells():
    """The same ends, lived one by one with an allocator of its own."""
    runs = [make_job(f"r{i}", 2, on="n1 n1") for i in range(4)]
    waits = [make_job(f"w{i}", size, age=9 - i) for i, size in enumerate((3, 5, 2, 4))]
    ends = {job.uid: NOW + 100 * (index + 1) for index, job in enumerate(runs)}
    foretold = starts(world(*runs, *waits), ends, *(job.uid for job in waits))

    lived, allocator, inputs = {}, Allocator(), world(*runs, *waits)
    for uid, end in ends.items():
        inputs = replace(inputs, now=end, jobs=tuple(job for job in inputs.jobs if job.uid != uid))
        granted = allocator.allocate(inputs)
        jobs = []
        for job in inputs.jobs:
            share = granted.assignment(job.uid)
            if job.uid.startswith("w") and share.replicas >= job.sizes[0] and job.uid not in lived:
                lived[job.uid] = end - NOW
                job = make_job(job.uid, job.sizes[0], on=" ".join(["n1"] * share.replicas), age=NOW - job.created)
            jobs.append(job)
        inputs = replace(inputs, jobs=tuple(jobs))
    assert foretold == lived


MANY = 60


def test_ends_of_many_jobs_that_free_nothing_for_it_use_up_no_decisions():
    runs, waits = make_job("runs", 8, on=EIGHT), make_job("waits", 8)
    others = [make_job(f"o{i}", 1, on="n2", flavor="") for i in range(MANY)]
    inputs = make_inputs([NODE, make_node("n2", 0, cpu=MANY)], [runs, waits, *others])
    ends = {"runs": NOW + 90_000, **{job.uid: NOW + 1.3**index for index, job in enumerate(others)}}
    steps = []
    assert starts(inputs, ends, "waits", steps=steps) == {"waits": 90_000}
    assert len(steps) == 1


def test_ends_that_lie_close_together_are_one_decision_so_that_hours_are_reached():
    runs, waits = make_job("runs", 8, on=EIGHT), make_job("waits", 8)
    short = [make_job(f"s{i}", 1, on="n2") for i in range(200)]
    inputs = make_inputs([NODE, make_node("n2", 200, cordoned=True)], [runs, waits, *short])
    ends = {"runs": NOW + 7 * 3600, **{job.uid: NOW + 100 * (i + 1) for i, job in enumerate(short)}}
    assert 7 * 3600 <= starts(inputs, ends, "waits")["waits"] <= 7 * 3600 * 1.1


def test_turns_of_many_jobs_that_wait_too_use_up_no_decisions():
    runs, waits = make_job("runs", 8, on=EIGHT), make_job("waits", 8, age=900, waiting_since=NOW - 900)
    others = [make_job(f"o{i}", 8, priority=-1, waiting_since=NOW - 5 * i - 1) for i in range(MANY)]
    assert starts(world(runs, waits, *others), {"runs": NOW + 3600}, "waits") == {"waits": 3600}


def test_an_end_in_thousands_of_years_is_not_known():
    shrinks, first = make_job("shrinks", 1, 8, on=EIGHT, age=9), make_job("first", 7, priority=1, age=5)
    late = replace(first, failed=FailedSize(1, NOW + 60))
    inputs = world(shrinks, late, make_job("waits", 1, priority=-1))
    assert "waits" not in starts(inputs, {"shrinks": NOW + 9.9 * 365 * 86400}, "waits")


def test_a_script_that_says_that_it_takes_thousands_of_years_says_nothing():
    training = Training(estimated_remaining_seconds=4 * 10**11, last_updated_time=status_time(NOW))
    job = make_facts(uid="lies", status=make_status(training=training))
    assert known_ends([Observation(job, job.status, members=(make_pod(),))], NOW) == {}


def test_confidence_is_the_part_of_the_gpus_in_use_whose_end_is_known():
    known, unknown = make_job("known", 2, on="n1 n1"), make_job("unknown", 4, on="n1 n1 n1 n1")
    inputs = make_inputs([make_node("n1", 8, used=2)], [known, unknown])
    allocation = allocate(inputs)
    assert confidence(inputs, allocation, {"known": NOW + 9}, "default") == 0.25
    assert confidence(inputs, allocation, {}, "default") == 0.0
    assert confidence(make_inputs([NODE], []), allocate(make_inputs([NODE], [])), {}, "default") is None
