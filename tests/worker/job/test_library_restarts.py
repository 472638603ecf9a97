"""Groups that cannot change in place, as FSDP2's: all write a checkpoint after the same step, and start again."""

import pytest

from tests.worker.job.exactly_once import LibraryJob
from tests.worker.job.local import end

pytestmark = [pytest.mark.programs, pytest.mark.timeout(240)]


@pytest.mark.parametrize("kind", ["restart", pytest.param("fsdp", marks=pytest.mark.extended)])
def test_a_planned_change_costs_no_step_and_a_loss_those_since_the_last_checkpoint(tmp_path, kind):
    with LibraryJob(tmp_path, "--kind", kind, "--checkpoint-every", 10) as job:
        job.start(0, 1)
        small = job.wait_world(2)
        before = job.pods[0].training()
        job.start(2)
        large = job.wait_world(3, after=small)
        assert job.change()["reason"] == "Join"
        assert job.change()["lostSteps"] == 0
        assert job.pods[0].training() != before
        job.pods[2].terminate()
        job.write_membership(0, 1)
        middle = job.wait_world(2, after=large)
        assert job.wait_code(job.pods[2]) == 143
        assert job.repeated_steps() == []
        end(job.pods[1].training()[0])
        job.wait_world(2, after=middle, steps=15)
        assert len(job.repeated_steps()) <= 11
        job.assert_exactly_once()
