"""Other people's trainers as elastic jobs: a planned change costs no step, and each sample counts once in an epoch."""

import itertools
import json
import os
import subprocess
from collections import Counter

import pytest

from tests.worker.job.local import end, tell
from tests.worker.job.pod import PYTHON, WORKER, torch_environment
from tests.worker.trainers.jobs import SCRIPTS, TrainerJob, with_trainers

pytestmark = [pytest.mark.programs, pytest.mark.extended, pytest.mark.timeout(240)]

LENGTH, GLOBAL_BATCH = 240, 12
STEPS_OF_EPOCH = LENGTH // GLOBAL_BATCH
SAVE_STEPS = 15
PAUSE = 0.02


def grow_and_shrink(job):
    """2 pods, 3, 2 again, for more than an epoch each time; returns the last generation."""
    job.start(0, 1)
    small = job.wait_world(2, steps=STEPS_OF_EPOCH + 5)
    job.start(2)
    large = job.wait_world(3, after=small, steps=STEPS_OF_EPOCH + 5)
    assert (job.change()["reason"], job.change()["lostSteps"]) == ("Join", 0)
    job.wait("its pause", lambda: job.change().get("pauseSeconds"))
    job.pods[2].terminate()
    job.write_membership(0, 1)
    last = job.wait_world(2, after=large, steps=SAVE_STEPS)
    assert job.wait_code(job.pods[2]) == 143
    assert (job.change()["reason"], job.change()["lostSteps"]) == ("Leave", 0)
    assert job.status()["training"]["step"] > 0
    assert job.repeated_steps() == []
    return last


def lose_a_process(job, *, after):
    """All start again from the newest complete checkpoint."""
    end(job.pods[1].training()[0])
    job.wait_world(2, after=after)
    assert len(job.repeated_steps()) <= SAVE_STEPS + 1


def finish(job):
    """Let it end well, after a step that is yet to come. No step is missing; in epochs, each sample counts once."""
    last = job.steps()[-1]["step"] + STEPS_OF_EPOCH
    tell(job.folder / "last-step", last)
    assert [job.wait_code(job.pods[index]) for index in (0, 1)] == [0, 0], job.report()
    lineage = job.lineage()
    assert sorted(lineage) == list(range(1, last + 1))
    for first in range(1, last + 1 - STEPS_OF_EPOCH, STEPS_OF_EPOCH):
        lines = itertools.chain.from_iterable(lineage[step] for step in range(first, first + STEPS_OF_EPOCH))
        counts = Counter(sample for line in lines for sample in line["samples"])
        assert sorted(counts.elements()) == list(range(LENGTH)), f"the epoch from step {first} on"


def test_a_hugging_face_trainer_grows_shrinks_and_passes_over_torn_checkpoints(tmp_path):
    with TrainerJob(tmp_path, "hugging.py", LENGTH, PAUSE, preload="transformers.trainer") as job:
        last = grow_and_shrink(job)
        (tmp_path / "output" / "checkpoint-99999").mkdir()
        (tmp_path / "output" / "checkpoint-99998").mkdir()
        (tmp_path / "output" / "checkpoint-99998" / "trainer_state.json").write_text('{"global_step": 99')
        lose_a_process(job, after=last)
        finish(job)


def test_a_hugging_face_script_that_knows_nothing_of_us_shows_its_progress(tmp_path):
    steps = 100
    with TrainerJob(tmp_path, "unchanged.py", LENGTH, 0.15, steps, preload="transformers.trainer") as job:
        job.start(0, 1)

        def known():
            training = job.status().get("training", {})
            return training if training.get("progressPercentage") else None

        training = job.wait("its progress", known)
        assert 0 < training["progressPercentage"] < 100
        assert training["estimatedRemainingSeconds"] > 0
        metrics = {metric["name"]: metric["value"] for metric in training["metrics"]}
        assert float(metrics["loss"]) > 0
        assert metrics["total_steps"] == str(steps)
        assert [job.wait_code(job.pods[index]) for index in (0, 1)] == [0, 0], job.report()


def test_a_lightning_trainer_grows_shrinks_and_passes_over_torn_checkpoints(tmp_path):
    with TrainerJob(tmp_path, "lit.py", LENGTH, PAUSE, "lightning.pytorch", preload="lightning.pytorch") as job:
        last = grow_and_shrink(job)
        (tmp_path / "checkpoints" / "elastic-step=99999.unfinished").write_bytes(b"half")
        lose_a_process(job, after=last)
        finish(job)
        assert len(list((tmp_path / "checkpoints").glob("*.ckpt"))) == 2


def test_without_the_launcher_the_callback_saves_nothing_and_the_older_package_does_too(tmp_path):
    tell(tmp_path / "last-step", 2 * SAVE_STEPS)
    ended = run([SCRIPTS / "lit.py", tmp_path, str(LENGTH), "0", "pytorch_lightning"])
    assert ended.returncode == 0, ended.stderr
    lines = (tmp_path / "steps-alone-0.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 2 * SAVE_STEPS + 1))
    assert not (tmp_path / "checkpoints").exists()


def test_a_world_that_cannot_make_the_global_batch_is_told_what_could():
    ask = "import elastic_worker as elastic; elastic.accumulation_steps(96, 8)"
    ended = run(["-c", ask], RANK="0", WORLD_SIZE="5", MASTER_ADDR="localhost")
    assert ended.returncode == 1
    assert "choose a multiple of 40" in ended.stderr


def run(command, **environ):
    """A process without a launcher."""
    everything = {**with_trainers(torch_environment()), **environ}
    everything["PYTHONPATH"] += f"{os.pathsep}{WORKER.parent}"
    return subprocess.run([PYTHON, *command], env=everything, check=False, capture_output=True, text=True, timeout=90)
