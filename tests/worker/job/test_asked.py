"""A planned change asks the script for a checkpoint: plain scripts that never save by themselves lose no step."""

import itertools

import pytest

from elastic_worker import contract
from tests.worker.job.local import FAKE_TORCH, REAL_TORCH, LocalJob

pytestmark = [pytest.mark.programs, pytest.mark.timeout(240)]

BY_SIGNAL = {contract.ENV_CHECKPOINT_SIGNAL: "SIGUSR1"}


class AskedJob(LocalJob):
    """Its script saves when it is asked to, and only then."""

    def __init__(self, folder, *, by="call", options=(), environ=(), **more):
        environ = {**(BY_SIGNAL if by == "signal" else {}), **dict(environ)}
        options = ["--by", by, *options]
        super().__init__(folder, script="asked.py", options=options, environ=environ, fewest=2, **more)

    def reclaim(self, after):
        """The operator takes pod 2 away, and gives one back: the generations that came of it."""
        self.pods[2].terminate()
        self.write_membership(0, 1)
        small = self.wait_training(2, after=after)
        assert self.wait_code(self.pods[2]) == 143
        self.start(2)
        return small, self.wait_training(3, after=small)

    def assert_no_step_lost(self):
        """Each generation goes on at the step after the last of the one before."""
        mine = [step for step in self.steps() if step["rank"] == 0]
        steps = [step["step"] for step in mine]
        assert steps == list(range(len(steps))), self.report()

    def assert_asked_together(self):
        """All ranks of each generation but the last were asked, once, after the same step."""
        steps = sorted(self.steps(), key=lambda step: step["generation"])
        by_generation = {key: list(group) for key, group in itertools.groupby(steps, lambda step: step["generation"])}
        del by_generation[max(by_generation)]
        assert by_generation
        for generation, mine in by_generation.items():
            asked = sorted((step["rank"], step["step"]) for step in mine if step["asked"])
            world = mine[0]["world"]
            assert [rank for rank, _ in asked] == list(range(world)), (generation, asked, self.report())
            assert len({step for _, step in asked}) == 1, (generation, asked)


@pytest.mark.parametrize("by", ["call", "file", "signal"])
@FAKE_TORCH
def test_a_reclaim_and_growth_lose_no_step_however_the_script_is_asked(tmp_path, tree, by):
    with AskedJob(tmp_path, tree=tree, by=by, options=["--together"]) as job:
        job.start(0, 1, 2)
        job.reclaim(job.wait_training(3))
        job.assert_no_step_lost()
        job.assert_asked_together()
        lost = [change.get("lostSteps") for change in job.status()["changes"] if change["reason"] != "Start"]
        assert lost == [0, 0], job.report()


@REAL_TORCH
def test_two_processes_in_each_pod_are_asked_after_the_same_step_by_a_signal(tmp_path, tree):
    with AskedJob(tmp_path, tree=tree, by="signal", nproc=2, options=["--together"]) as job:
        job.start(0, 1, 2)
        job.reclaim(job.wait_training(3))
        job.assert_no_step_lost()
        job.assert_asked_together()


@FAKE_TORCH
def test_a_job_that_is_suspended_saves_first_and_all_its_pods_leave_in_good_order(tmp_path, tree):
    with AskedJob(tmp_path, tree=tree) as job:
        job.start(0, 1)
        job.wait_training(2)
        for pod in (job.pods[0], job.pods[1]):
            pod.terminate()
        assert [job.wait_code(pod) for pod in job.all_pods] == [143, 143]
        job.start(0, 1)
        job.wait("it to go on", lambda: {step["rank"] for step in job.steps() if step["master"] == 2} == {0, 1})
        job.assert_no_step_lost()


@FAKE_TORCH
def test_of_a_script_that_does_not_heed_it_the_log_says_so_and_the_change_takes_place_in_time(tmp_path, tree):
    limit = {contract.ENV_ALIGN_SECONDS: "2"}
    with AskedJob(tmp_path, tree=tree, grace=8, environ=limit, options=["--deaf"]) as job:
        job.start(0, 1, 2)
        before = job.wait_training(3)
        job.pods[2].terminate()
        job.write_membership(0, 1)
        job.wait_training(2, after=before)
        assert "no checkpoint came in time, although the script was asked for one" in job.pods[0].said()


@FAKE_TORCH
def test_a_signal_that_the_script_does_not_handle_is_not_sent(tmp_path, tree):
    """It would end the process."""
    with AskedJob(tmp_path, tree=tree, by="call", environ=BY_SIGNAL) as job:
        job.start(0, 1, 2)
        job.reclaim(job.wait_training(3))
        job.assert_no_step_lost()
        assert job.status()["failures"] == 0
        assert "SIGUSR1 is not sent" in job.pods[0].said()


@pytest.mark.parametrize("by", ["call", "signal"])
@FAKE_TORCH
def test_a_script_whose_steps_are_not_counted_is_asked_at_once(tmp_path, tree, by):
    with AskedJob(tmp_path, tree=tree, by=by, environ={contract.ENV_COUNT_STEPS: "0"}) as job:
        job.start(0, 1, 2)
        job.reclaim(job.wait_training(3))
        steps = [step["step"] for step in job.steps() if step["rank"] == 0]
        assert all(after >= before - 1 for before, after in itertools.pairwise(steps)), job.report()
        assert "asked for a checkpoint at once" in job.pods[0].said()


@pytest.mark.extended
@pytest.mark.timeout(900)
@pytest.mark.parametrize("by", ["call", "file", "signal"])
@FAKE_TORCH
def test_twenty_reclaims_lose_no_step_without_the_scripts_own_checkpoints(tmp_path, tree, by):
    with AskedJob(tmp_path, tree=tree, by=by, options=["--together"]) as job:
        job.start(0, 1, 2)
        large = job.wait_training(3)
        for _ in range(20):
            _, large = job.reclaim(large)
        job.assert_no_step_lost()
        job.assert_asked_together()
        assert job.status()["failures"] == 0
        assert {change["lostSteps"] for change in job.status()["changes"] if change["reason"] != "Start"} == {0}
