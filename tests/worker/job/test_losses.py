"""Something dies: a process, a pod, the coordinator, the master. The others go on, and nothing is skipped."""

import os
import signal

import pytest

from tests.kit.unkillable import unkillable
from tests.worker.job.local import FAKE_TORCH, REAL_TORCH, LocalJob, end
from tests.worker.job.pod import FAKE, REAL

pytestmark = [pytest.mark.programs, pytest.mark.timeout(240)]


@pytest.mark.parametrize(("nproc", "tree"), [(1, REAL), (2, FAKE), pytest.param(2, REAL, marks=pytest.mark.extended)])
def test_a_killed_training_process_makes_all_start_again_from_the_checkpoint(tmp_path, nproc, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2, nproc=nproc) as job:
        job.start(0, 1)
        before = job.wait_training(2)
        end(job.pods[1].training()[-1])
        after = job.wait_training(2, after=before)
        assert after == before + 1
        assert job.status()["changes"][0]["reason"] == "Failure"
        assert all(pod.code is None for pod in job.all_pods)
        job.assert_no_epoch_skipped()


def test_the_step_that_is_told_goes_on_from_the_checkpoint_when_much_is_lost(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2, options=["--save-until", 2]) as job:

        def step():
            return job.status()["training"].get("step", 0)

        job.start(0, 1)
        before = job.wait_training(2)
        far = job.wait("ten epochs", lambda: (told := step()) >= 100 and told)
        end(job.pods[1].training()[-1])
        job.wait_training(2, after=before)
        again = job.wait("the step of the new group", lambda: job.status()["generation"] > before and step())
        assert again < far, "it goes on where the checkpoint is, 20 steps from the start"
        job.wait("a further step", lambda: again < step() < far)


def test_a_killed_worker_pod_costs_the_others_no_wait_for_its_replacement(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2) as job:
        job.start(0, 1, 2)
        before = job.wait_training(3)
        job.pods[2].kill()
        shrunk = job.wait_training(2, after=before)
        assert job.status()["changes"][0]["reason"] == "Loss"
        job.start(2)
        job.wait_training(3, after=shrunk)
        job.assert_no_epoch_skipped()


def test_an_even_split_pauses_while_no_operator_speaks(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=1) as job:
        job.start(0, 1)
        before = job.wait_training(2)
        job.pods[1].kill()
        job.wait("the pause", lambda: job.status().get("state") == "Waiting")
        done = len(job.steps())
        assert "not more than half" in job.status()["reason"]
        assert not job.pods[0].training()
        job.write_membership(0)
        job.wait_training(1, after=before)
        assert len(job.steps()) > done
        job.assert_no_epoch_skipped()


def test_a_killed_coordinator_is_not_noticed_by_the_training(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2) as job:
        job.start(0, 1)
        before = job.wait_training(2)
        old, training = job.pods[0].coordinator(), job.pods[0].training()
        end(old)
        job.wait("a new coordinator", lambda: job.pods[0].coordinator() not in (None, old))
        job.wait("the members to be back", lambda: job.status().get("members") and job.status()["state"] == "Running")
        assert job.pods[0].training() == training
        assert job.status()["generation"] == before
        job.start(2)
        job.wait_training(3, after=before)
        assert job.repeated() == 0


@REAL_TORCH
def test_a_lost_master_is_replaced_and_the_others_stay(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2) as job:
        job.start(0, 1, 2)
        before = job.wait_training(3)
        workers = [job.pods[1].pid, job.pods[2].pid]
        job.pods[0].kill()
        job.start(0)
        after = job.wait_training(3, after=before)
        assert after > before
        assert [job.pods[1].pid, job.pods[2].pid] == workers
        assert job.status()["epoch"] == 2
        assert job.status()["changes"][0]["reason"] == "MasterLost"
        job.assert_no_epoch_skipped()


def test_a_joiner_that_dies_while_the_group_forms(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2) as job:
        job.start(0, 1)
        before = job.wait_training(2)
        job.start(2)
        job.wait("the joiner's process", lambda: job.pods[2].pid and "generation" in job.pods[2].said())
        job.pods[2].kill()
        job.write_membership(0, 1)
        job.wait_training(2, after=before)
        job.assert_no_epoch_skipped()


def test_stopped_process_is_killed_and_the_job_continues(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2) as job:
        job.start(0, 1)
        before = job.wait_training(2)
        os.kill(job.pods[1].training()[0], signal.SIGSTOP)
        job.wait_training(2, after=before)
        job.assert_no_epoch_skipped()


@FAKE_TORCH
def test_process_that_survives_sigkill_costs_only_its_pod(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2) as job:
        job.start(0, 1, 2)
        before = job.wait_training(3)
        with unkillable(job.pods[2].training()[0]):
            end(job.pods[1].training()[0])
            shrunk = job.wait_training(2, after=before)
            [given_up] = job.status()["givenUp"]
            assert given_up["pod"] == "toy-worker-1"
            assert "cannot be ended by SIGKILL" in given_up["why"]
        job.wait_training(3, after=shrunk)
        assert job.status()["givenUp"] == []
        job.assert_no_epoch_skipped()
