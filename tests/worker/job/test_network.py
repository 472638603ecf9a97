"""The network between pods is cut until they are missed, and healed; a master that trains on alone gives way."""

import time

import pytest

from tests.worker.job.local import REAL_TORCH, LocalJob

pytestmark = [pytest.mark.programs, pytest.mark.timeout(240)]


@REAL_TORCH
def test_who_is_cut_off_is_left_behind_and_comes_back_as_a_newcomer(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2, network=True) as job:
        job.start(0, 1, 2)
        before = job.wait_training(3)
        job.network.cut(job.pods[2].place)
        small = job.wait_training(2, after=before)
        job.network.heal(job.pods[2].place)
        job.wait_training(3, after=small)
        assert job.pods[2].code is None
        job.assert_no_epoch_skipped()


def test_halves_of_a_partition_do_not_train_without_an_operator(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=1, network=True) as job:
        job.start(0, 1, 2, 3)
        before = job.wait_training(4)
        for index in (2, 3):
            job.network.cut(job.pods[index].place)
        job.wait("the pause", lambda: job.status().get("state") == "Waiting")
        steps = len(job.steps())
        time.sleep(3)
        assert len(job.steps()) == steps
        for index in (2, 3):
            job.network.heal(job.pods[index].place)
        job.wait_training(4, after=before)
        job.assert_no_epoch_skipped()


def test_a_master_that_is_cut_off_and_trains_on_gives_way_to_a_later_one(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=1, network=True) as job:
        job.start(0)
        job.wait_training(1)
        old = job.pods[0]
        job.network.cut(old.place)
        steps = len(job.steps())
        job.wait("more steps of who is cut off", lambda: len(job.steps()) > steps + 50)
        job.start(0)
        job.wait("the later master's steps", lambda: _of(job, 2))
        assert not old.training()
        job.network.heal(old.place)
        steps = len(job.steps())
        job.wait("more steps", lambda: len(job.steps()) > steps + 100)
        begun = _of(job, 2)[0]["time"]
        assert not [step for step in _of(job, 1) if step["time"] > begun]
        job.assert_no_epoch_skipped()


def _of(job, epoch):
    return [step for step in job.steps() if step["master"] == epoch]
