"""A pod is told to go: whenever that is, and whatever its script makes of it."""

import signal

import pytest

from elastic_worker import contract
from tests.worker.job.local import FAKE_TORCH, LocalJob, tell
from tests.worker.job.pod import torch_environment

pytestmark = [pytest.mark.programs, pytest.mark.timeout(240)]


@FAKE_TORCH
def test_a_pod_that_is_told_to_go_while_it_starts_goes_at_once(tmp_path, tree):
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(600)\n")
    path = f"{torch_environment(tree)['PYTHONPATH']}:{tmp_path}"
    environ = {"PYTHONPATH": path, contract.ENV_PRELOAD: "endless"}
    with LocalJob(tmp_path, tree=tree, fewest=2, grace=60, environ=environ) as job:
        job.start(0, 1)
        job.wait("the launcher's start", lambda: "connected" in job.pods[1].said())
        job.pods[1].terminate()
        assert job.wait_code(job.pods[1], seconds=20) == 143
        assert not job.steps()


@FAKE_TORCH
def test_a_pod_that_is_told_to_go_without_anybody_to_tell_it_to_goes(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2, grace=60) as job:
        job.start(1)
        job.wait("the launcher's start", lambda: "no coordinator" in job.pods[1].said())
        job.pods[1].terminate()
        assert job.wait_code(job.pods[1], seconds=20) == 143


def test_a_pod_that_is_told_to_go_while_its_group_forms(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2) as job:
        job.start(0, 1)
        before = job.wait_training(2)
        job.start(2)
        job.wait("its process", lambda: "processes started" in job.pods[2].said())
        job.pods[2].terminate()
        job.wait_training(2, after=before)
        assert job.wait_code(job.pods[2]) == 143
        job.assert_no_epoch_skipped()


def test_who_leaves_while_a_checkpoint_is_written_waits_for_its_end(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2, options=["--save-pause", 1.5, "--steps", 5]) as job:
        job.start(0, 1, 2)
        before = job.wait_training(3)
        job.wait("a checkpoint under way", lambda: list(tmp_path.glob("checkpoint.pt.*.tmp")))
        job.pods[2].terminate()
        job.write_membership(0, 1)
        job.wait_training(2, after=before)
        assert job.repeated() == 0, job.report()


def test_a_checkpoint_that_is_written_in_place_is_never_cut_by_a_planned_change(tmp_path, tree):
    """Most of the time it is being written: whoever stops the script at any moment leaves half a file."""
    options = ["--save-pause", 0.6, "--save-in-place", "--steps", 3, "--pause", 0.01]
    with LocalJob(tmp_path, tree=tree, fewest=2, options=options) as job:
        job.start(0, 1)
        before = job.wait_training(2)
        for _ in range(3):
            job.start(2)
            grown = job.wait_training(3, after=before)
            job.pods[2].terminate()
            job.write_membership(0, 1)
            before = job.wait_training(2, after=grown)
        assert job.status()["failures"] == 0
        assert "failed with exit code" not in job.pods[0].said()
        assert job.repeated() == 0, job.report()


@FAKE_TORCH
def test_the_second_file_of_a_checkpoint_is_never_cut_though_other_pods_cannot_see_its_writer(tmp_path, tree):
    """A folder is complete when it was quiet for 1 s, as in each epoch. Others find it so while a file is open."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    options = ["--save-second", 1.8, "--steps", 10, "--pause", 0.2]
    environ = {contract.ENV_CHECKPOINT_PATH: folder}
    with LocalJob(tmp_path, tree=tree, fewest=2, options=options, checkpoint=False, environ=environ) as job:
        job.start(0, 1)
        before = job.wait_training(2)
        job.start(2)
        grown = job.wait_training(3, after=before)
        second = folder / "optimizer.pt"
        job.wait("half of the second file", lambda: second.exists() and second.stat().st_size == 1000)
        job.pods[2].terminate()
        job.write_membership(0, 1)
        job.wait_training(2, after=grown)
        assert job.status()["failures"] == 0
        assert "failed with exit code" not in job.pods[0].said()
        assert "no checkpoint came in time" not in job.pods[0].said()


def test_a_leaver_whose_script_ignores_the_signal_is_ended_within_its_grace(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2, grace=5, options=["--on-term", "ignore"]) as job:
        job.start(0, 1, 2)
        before = job.wait_training(3)
        job.pods[2].terminate()
        job.write_membership(0, 1)
        assert job.wait_code(job.pods[2], seconds=30) == 143
        job.wait_training(2, after=before)
        job.assert_no_epoch_skipped()


def test_a_script_that_ends_by_itself_when_told_to_stop_is_no_failure(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2, options=["--on-term", "exit"]) as job:
        job.start(0, 1)
        before = job.wait_training(2)
        job.start(2)
        job.wait_training(3, after=before)
        assert list(tmp_path.glob("told-*"))
        assert job.status()["failures"] == 0
        assert job.repeated() == 0


def test_leave_and_join_at_once(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2) as job:
        job.start(0, 1, 2)
        before = job.wait_training(3)
        job.start(3)
        job.pods[2].terminate()
        job.write_membership(0, 1, 3)
        job.wait("the newcomer to train", lambda: job.steps("toy-worker-2"))
        job.wait_training(3, after=before)
        assert job.wait_code(job.pods[2]) == 143
        job.assert_no_epoch_skipped()


def test_a_master_that_leaves_saves_first_and_its_successor_goes_on(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2) as job:
        job.start(0, 1)
        before = job.wait_training(2)
        old = job.pods[0]
        old.terminate()
        assert job.wait_code(old) == 143
        job.start(0)
        job.wait_training(2, after=before)
        assert job.repeated() == 0, job.report()


def test_all_pods_told_to_go_at_once_stop_after_a_checkpoint(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2, options=["--steps", 5, "--pause", 0.2]) as job:
        job.start(0, 1)
        job.wait_training(2)
        # No step is done between the checkpoint and the stop, however long that takes.
        job.wait("the middle of an epoch", lambda: job.steps()[-1]["step"] in (1, 2))
        tell(tmp_path / "first-step-seconds", 60)
        for pod in (job.pods[0], job.pods[1]):
            pod.terminate()
        assert [job.wait_code(pod) for pod in job.all_pods] == [143, 143]
        last = [step for step in job.steps() if step["rank"] == 0][-1]
        assert last["step"] == 4, "the last epoch was not finished"
        job.assert_nothing_left()


def test_without_a_checkpoint_path_nobody_waits(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2, checkpoint=False, options=["--steps", 100_000]) as job:
        job.start(0, 1, 2)
        job.wait("training", lambda: len(job.steps()) > 30)
        job.pods[2].signal(signal.SIGTERM)
        job.write_membership(0, 1)
        assert job.wait_code(job.pods[2]) == 143
        job.wait("the others to go on", lambda: any(step["world"] == 2 for step in job.steps()))
        assert "lostSteps" not in job.status()["changes"][0]
