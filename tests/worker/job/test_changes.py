"""Members join and leave a training job: real launchers, real torch, a script that knows nothing of us."""

import pytest

from tests.worker.job.local import REAL_TORCH, LocalJob

pytestmark = [pytest.mark.programs, pytest.mark.timeout(240)]


@REAL_TORCH
def test_a_job_grows_by_several_and_shrinks_to_its_minimum_without_doing_an_epoch_again(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2) as job:
        job.start(0, 1)
        first = job.wait_training(2)
        job.start(2, 3)
        grown = job.wait_training(4, after=first)
        assert grown == first + 1, job.report()
        for index in (2, 3):
            job.pods[index].terminate()
        job.write_membership(0, 1)
        shrunk = job.wait_training(2, after=grown)
        assert [job.wait_code(job.pods[i]) for i in (2, 3)] == [143, 143]
        assert job.repeated() == 0, job.report()
        changes = {change["generation"]: change for change in job.status()["changes"]}
        assert changes[grown]["reason"] == "Join"
        assert (changes[shrunk]["reason"], changes[shrunk]["to"]) == ("Leave", 2)
        assert changes[shrunk]["lostSteps"] <= 2, "it was stopped right after a checkpoint"
        for index in (1, 0):
            job.pods[index].terminate()
            assert job.wait_code(job.pods[index]) == 143
        job.assert_no_epoch_skipped()
        job.assert_nothing_left()
