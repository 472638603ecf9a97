"""Planned changes of a job whose script uses the library: no process starts again, no step is done twice."""

import signal

import pytest

from tests.worker.job.exactly_once import STEPS, LibraryJob
from tests.worker.job.local import end

pytestmark = [pytest.mark.programs, pytest.mark.timeout(240)]


def test_pods_come_and_go_and_no_process_starts_again(tmp_path):
    with LibraryJob(tmp_path) as job:
        job.start(0, 1)
        small = job.wait_world(2)
        first = job.pods[0].training(), job.pods[1].training()
        job.start(2, 3)
        large = job.wait_world(4, after=small)
        joined = job.wait("the change is told", lambda: [c for c in job.status()["changes"] if c["to"] == 4])[0]
        assert (joined["reason"], joined["lostSteps"]) == ("Join", 0)
        told = job.wait("how it goes is told", lambda: "goodput" in (t := job.status()["training"]) and t)
        assert told["samplesSeen"] > 0
        assert 0 < told["goodput"]["share"] < 1
        job.pods[3].terminate()
        job.write_membership(0, 1, 2)
        assert job.wait_code(job.pods[3]) == 143
        middle = job.wait_world(3, after=large)
        for index in (1, 2):
            job.pods[index].terminate()
        job.write_membership(0)
        last = job.wait_world(1, after=middle)
        assert [job.wait_code(job.pods[index]) for index in (1, 2)] == [143, 143]
        job.start(4)
        job.wait_world(2, after=last)
        assert job.pods[0].training() == first[0]
        assert job.repeated_steps() == []
        assert job.assert_exactly_once() > 30
        assert [change["reason"] for change in job.status()["changes"]][-1] == "Start"


def test_a_master_that_is_told_to_go_leaves_the_others_training_and_the_next_one_joins_them(tmp_path):
    with LibraryJob(tmp_path, "--checkpoint-every", 10, fewest=2) as job:
        job.start(0, 1, 2)
        before = job.wait_world(3)
        survivors = [job.pods[index].training() for index in (1, 2)]
        job.pods[0].terminate()
        assert job.wait_code(job.pods[0]) == 143
        alone = job.wait_world(2, after=before, steps=40)
        job.start(0)
        whole = job.wait_world(3, after=alone)
        assert [job.pods[index].training() for index in (1, 2)] == survivors
        assert {step["rank"] for step in job.steps("toy-master-0") if step["generation"] == whole} == {0}
        assert job.status()["training"].get("checkpointError", "") == ""
        assert job.repeated_steps() == []
        job.assert_exactly_once()


@pytest.mark.extended
def test_two_processes_a_pod_one_of_which_dies_and_an_end_in_the_middle_of_changes(tmp_path):
    with LibraryJob(tmp_path, nproc=2) as job:
        job.start(0, 1)
        before = job.wait_world(4)
        other, victim = job.pods[0].training()
        end(victim)
        before = job.wait_world(4, after=before)
        assert other in job.pods[0].training()
        job.start(2)
        grown = job.wait_world(6, after=before)
        job.pods[1].terminate()
        job.write_membership(0, 2)
        job.wait_world(4, after=grown)
        epochs = job.finish()
        assert [job.wait_code(job.pods[index]) for index in (0, 2)] == [0, 0]
        assert job.repeated_steps() == []
        assert job.assert_exactly_once() == epochs * STEPS
        job.assert_nothing_left()


@pytest.mark.extended
def test_a_change_in_the_middle_of_an_evaluation_repeats_it_and_newcomers_skip_what_was_done(tmp_path):
    with LibraryJob(tmp_path, "--evaluate", "--pause", 0.05) as job:
        job.start(0, 1)
        job.wait_world(2)
        # 20 steps, then about 30 evaluation batches: the newcomer comes into one or the other.
        job.start(2)
        job.wait_world(3)
        job.pods[1].terminate()
        job.write_membership(0, 2)
        epochs = job.finish(epochs=4)
        assert [job.wait_code(job.pods[index], seconds=120) for index in (0, 2)] == [0, 0]
        assert job.assert_exactly_once() == epochs * STEPS
        results = [line for file in tmp_path.glob("evaluated-*") for line in file.read_text().splitlines()]
        assert results
        assert all('"count": 960.0' in line for line in results)


@pytest.mark.extended
def test_below_the_minimum_all_wait_with_their_state_and_go_on(tmp_path):
    with LibraryJob(tmp_path, fewest=2) as job:
        job.start(0, 1)
        before = job.wait_world(2)
        training = job.pods[0].training()
        job.pods[1].terminate()
        job.write_membership(0)
        job.wait_code(job.pods[1])
        job.wait("the pause", lambda: "in memory" in job.status().get("reason", ""))
        done = len(job.steps())
        job.start(2)
        job.wait_world(2, after=before)
        assert len(job.steps()) > done
        assert job.pods[0].training() == training
        assert job.repeated_steps() == []
        job.assert_exactly_once()


@pytest.mark.extended
def test_all_pods_leave_and_the_state_is_written_first(tmp_path):
    with LibraryJob(tmp_path) as job:
        job.start(0, 1)
        job.wait_world(2, steps=8)
        for pod in job.pods.values():
            pod.terminate()
        assert [job.wait_code(pod) for pod in job.pods.values()] == [143, 143]
        done = job.assert_exactly_once()
        job.pods.clear()
        job.start(5, 0)
        job.wait("it goes on", lambda: max(step["step"] for step in job.steps()) > done + 5)
        assert job.repeated_steps() == []
        job.assert_exactly_once()


@pytest.mark.extended
def test_all_pods_are_told_to_go_the_master_before_the_others_and_the_state_is_written(tmp_path):
    with LibraryJob(tmp_path, fewest=2) as job:
        job.start(0, 1, 2)
        job.wait_world(3, steps=8)
        job.pods[0].terminate()
        job.wait("they go on without it", lambda: "bind: 2 pods go on" in job.pods[0].said())
        for index in (1, 2):
            job.pods[index].terminate()
        assert [job.wait_code(pod) for pod in job.pods.values()] == [143, 143, 143]
        done = job.assert_exactly_once()
        job.pods.clear()
        job.start(5, 6, 0)
        job.wait("it goes on", lambda: max(step["step"] for step in job.steps()) > done + 5)
        assert job.repeated_steps() == []
        job.assert_exactly_once()


@pytest.mark.extended
def test_a_pod_that_is_told_to_go_while_it_gets_ready_just_goes(tmp_path):
    with LibraryJob(tmp_path, "--setup", 2) as job:
        job.start(0, 1)
        before = job.wait_world(2)
        job.start(2)
        job.wait("its script runs", lambda: "started to join" in job.pods[2].said())
        job.pods[2].signal(signal.SIGTERM)
        job.write_membership(0, 1)
        assert job.wait_code(job.pods[2]) == 143
        steps = len(job.steps())
        job.wait("more steps", lambda: len(job.steps()) > steps + 40)
        assert job.generation() == before
        job.assert_exactly_once()
