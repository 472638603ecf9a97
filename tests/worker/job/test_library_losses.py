"""Something dies under a script that uses the library: the others go on where they are, and each sample counts once."""

import os
import re
import signal

import pytest

from elastic_worker import contract
from tests.worker.disk import small_disk
from tests.worker.job.exactly_once import LibraryJob
from tests.worker.job.local import end

pytestmark = [pytest.mark.programs, pytest.mark.timeout(240)]


def test_job_survives_the_death_of_each_process_of_a_pod(tmp_path):
    with LibraryJob(tmp_path) as job:
        job.start(0, 1, 2)
        before = job.wait_world(3)
        job.pods[2].kill()
        after_pod = job.wait_world(2, after=before)
        assert job.change()["reason"] == "Loss"
        # A process: its pod is left out, starts it anew, and comes back.
        (victim,) = job.pods[1].training()
        end(victim)
        after_process = job.wait_world(2, after=after_pod)
        (again,) = job.pods[1].training()
        assert again != victim
        training, coordinator = job.pods[0].training(), job.pods[0].coordinator()
        end(coordinator)
        job.wait("a new coordinator", lambda: job.pods[0].coordinator() not in (None, coordinator))
        end(job.pods[1].zygote())
        job.start(3)
        job.wait_world(3, after=after_process)
        assert job.pods[0].training() == training
        assert job.assert_exactly_once() > 20
        assert job.repeated_steps() == []


def test_the_masters_process_dies_and_then_the_master_without_which_the_others_go_on(tmp_path):
    with LibraryJob(tmp_path) as job:
        job.start(0, 1, 2)
        before = job.wait_world(3)
        survivors = [job.pods[index].training() for index in (1, 2)]
        end(job.pods[0].training()[0])
        after_process = job.wait_world(3, after=before)
        assert job.change()["reason"] == "Loss"
        job.pods[0].kill()
        job.start(0)
        alone = job.wait_world(2, after=after_process, steps=1)
        after_pod = job.wait_world(3, after=alone)
        assert [change["reason"] for change in job.status()["changes"][:2]] == ["Join", "MasterLost"]
        assert [job.pods[index].training() for index in (1, 2)] == survivors
        assert {step["master"] for step in job.steps() if step["generation"] == after_pod} == {2}
        job.assert_exactly_once()


@pytest.mark.extended
def test_a_stopped_process_and_a_stopped_pod_are_missed_and_come_back(tmp_path):
    with LibraryJob(tmp_path) as job:
        job.start(0, 1, 2)
        before = job.wait_world(3)
        (stopped,) = job.pods[1].training()
        os.kill(stopped, signal.SIGSTOP)
        after = job.wait_world(3, after=before)
        (again,) = job.pods[1].training()
        assert again != stopped
        job.pods[2].freeze()
        small = job.wait_world(2, after=after)
        job.pods[2].thaw()
        job.wait_world(3, after=small)
        job.assert_exactly_once()


@pytest.mark.extended
def test_a_script_that_always_fails_fails_the_job(tmp_path):
    with LibraryJob(tmp_path, "--fail-at", 30) as job:
        job.start(0, 1)
        codes = {job.wait_code(pod) for pod in job.pods.values()}
        assert codes == {93}
        assert "the loss is NaN in step 30" in job.pods[0].said()
        assert "failure 3 in a row" in job.pods[0].said()


@pytest.mark.extended
def test_rank_that_hangs_in_a_step_restarts_all_from_checkpoint(tmp_path):
    options = ["--fail-at", 45, "--fail-rank", 1, "--fail-how", "hang", "--fail-once", "--checkpoint-every", 10]
    with LibraryJob(tmp_path, *options, environ={contract.ENV_STALL_SECONDS: "4"}) as job:
        job.start(0, 1)
        job.wait("it goes on", lambda: max((step["step"] for step in job.steps()), default=0) > 60)
        assert re.search(r"no step for \d+ s; rank [01] is least far, at boundary \d+", job.pods[0].said())
        assert "library.py" in job.pods[1].said(), "the stacks are in the log"
        assert 0 < len(job.repeated_steps()) <= 11
        job.assert_exactly_once()


@pytest.mark.extended
def test_a_process_that_hangs_when_its_group_is_lost_ends_itself_and_comes_back(tmp_path):
    options = ["--fail-at", 30, "--fail-rank", 1, "--fail-how", "hang", "--fail-once"]
    with LibraryJob(tmp_path, *options) as job:
        job.start(0, 1, 2)
        job.wait("a process hangs", lambda: "it hangs now" in job.pods[1].said())
        survivor = job.pods[0].training()
        job.pods[2].kill()
        job.wait("it goes on", lambda: max(step["step"] for step in job.steps()) > 40)
        job.wait("it is back", lambda: job.status().get("worldSize") == 2)
        assert "stuck for 15 s in a group that has lost a pod" in job.pods[1].said()
        assert job.pods[0].training() == survivor
        assert job.repeated_steps() == []
        job.assert_exactly_once()


def test_the_network_is_cut_and_heals_and_an_old_master_returns(tmp_path):
    with LibraryJob(tmp_path, fewest=2, network=True) as job:
        job.start(0, 1, 2)
        before = job.wait_world(3)
        job.network.cut(job.pods[2].place)
        small = job.wait_world(2, after=before)
        job.network.heal(job.pods[2].place)
        whole = job.wait_world(3, after=small)
        old = job.pods[0]
        job.network.cut(old.place)
        job.start(0)
        after = job.wait_world(3, after=whole)
        job.network.heal(old.place)
        steps = len(job.steps())
        job.wait("more steps", lambda: len(job.steps()) > steps + 300)
        assert job.generation() == after, "the old master disturbs those who train"
        assert job.status()["epoch"] == 2
        notes = list((tmp_path / "checkpoints").glob(".elastic-master-*"))
        assert [int(note.read_text()) for note in notes] == [2]
        steps = [step for step in job.steps() if step["master"] == 1 and step["generation"] > whole]
        assert not steps, "the old master trains on"
        job.assert_exactly_once()


@pytest.mark.extended
def test_a_full_disk_is_told_and_training_goes_on(tmp_path):
    with small_disk(tmp_path / "small", "64k") as folder:
        (tmp_path / "job").mkdir()
        (tmp_path / "job" / "checkpoints").symlink_to(folder)
        with LibraryJob(tmp_path / "job", "--checkpoint-every", 10) as job:
            job.start(0, 1)
            job.wait_world(2)
            # More than there is, as a checkpoint may have given back some just now.
            with pytest.raises(OSError, match="No space left"):
                (folder / "fill").write_bytes(bytes(128 << 10))
            job.wait("it is told", lambda: "checkpointError" in str(job.status().get("training")))
            steps = len(job.steps())
            job.wait("more steps", lambda: len(job.steps()) > steps + 40)
            (folder / "fill").unlink()
            job.assert_exactly_once()
