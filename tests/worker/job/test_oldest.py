"""The oldest torch that is supported: a job's whole life with it."""

import pytest

from tests.worker.job.exactly_once import LibraryJob
from tests.worker.job.local import LocalJob, end

pytestmark = [pytest.mark.programs, pytest.mark.timeout(280)]


@pytest.mark.extended
def test_join_loss_leave_and_end_with_torch_2_4(tmp_path):
    with LocalJob(tmp_path, fewest=2, tree="oldest") as job:
        job.start(0, 1)
        first = job.wait_training(2)
        job.start(2)
        grown = job.wait_training(3, after=first)
        assert job.repeated() == 0
        end(job.pods[1].training()[0])
        again = job.wait_training(3, after=grown)
        job.pods[2].terminate()
        job.write_membership(0, 1)
        job.wait_training(2, after=again)
        assert job.wait_code(job.pods[2]) == 143
        job.finish()
        assert [job.wait_code(job.pods[i]) for i in (0, 1)] == [0, 0]
        assert not job.status()
        job.assert_no_epoch_skipped()
        job.assert_nothing_left()


def test_a_script_that_uses_the_library_grows_shrinks_and_loses_a_pod(tmp_path):
    with LibraryJob(tmp_path, tree="oldest") as job:
        job.start(0, 1)
        small = job.wait_world(2)
        job.start(2)
        large = job.wait_world(3, after=small)
        job.pods[1].terminate()
        job.write_membership(0, 2)
        middle = job.wait_world(2, after=large)
        assert job.repeated_steps() == []
        job.pods[2].kill()
        job.write_membership(0)
        job.wait_world(1, after=middle)
        assert job.assert_exactly_once() > 15
