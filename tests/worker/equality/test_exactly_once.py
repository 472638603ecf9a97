"""Through joins, planned leaves and kills: every sample once per epoch, and the weights of a run without any of it."""

import os
import signal

import pytest

from tests.worker.equality import plain, runs
from tests.worker.equality.counting import assert_exactly_once
from tests.worker.equality.test_sizes import grow, leave, wait_for

pytestmark = pytest.mark.extended

SHAPE = {"length": 100, "batch": 24, "micro": 4}
EPOCHS, STEPS = 40, 200
ARGUMENTS = ["--models", "mlp,dropout,norm", "--epochs", EPOCHS, *(f"--{key}={value}" for key, value in SHAPE.items())]


def trouble(folder):
    """Gives what was written, and the steps in which something was killed: the last ones of their generations."""
    folder.mkdir()
    with runs.elastic(folder, *ARGUMENTS, "--clip=0.2", fewest=1) as job:
        grow(job, 2, 0, 1)
        grow(job, 3, 2)
        after = job.generation()
        job.pods[1].kill()
        job.write_membership(0, 2)
        wait_for_next(job, after, world=2)
        after = job.generation()
        (training,) = job.pods[2].training()
        os.kill(training, signal.SIGKILL)
        wait_for_next(job, after, world=2)
        leave(job, 2)
        wait_for(job, 1)
        runs.set_pace(folder, 0)
        assert job.wait_code(job.pods[0], seconds=60) == 0, job.report()
        report = job.report()
    written = runs.Written(folder)
    last = {line["generation"]: line["step"] for line in sorted(written.lines, key=lambda line: line["step"])}
    return written, set(last.values()), report


def wait_for_next(job, after, *, world):
    """Until a later generation of this size has trained a bit."""

    def trains():
        mine = {line["step"] for line in job.steps() if line["generation"] > after and line["world"] == world}
        return len(mine) >= 5

    job.wait(f"a generation of {world} after {after}", trains)


@pytest.fixture(scope="module")
def troubled(tmp_path_factory):
    return trouble(tmp_path_factory.mktemp("trouble") / "job")


def test_every_sample_is_applied_once_per_epoch(troubled):
    written, ends, _ = troubled
    assert len({line["generation"] for line in written.lines}) >= 5
    assert_exactly_once(written.commits(), **SHAPE, steps=STEPS, may_lack=dict.fromkeys(ends, 1))
    assert not written.repeated()


@pytest.mark.parametrize("name", ["mlp", "dropout", "norm"])
def test_the_weights_are_those_of_plain_torch(troubled, name):
    written, _, report = troubled
    expected = plain.train(name, epochs=EPOCHS, **SHAPE, clip=0.2, whole=False).state_dict()
    distance = runs.farthest(written.final(name), expected, only=runs.is_parameter)
    print(name, distance)
    assert distance < 1e-12, report


def test_processes_of_a_pod_may_end_one_after_the_other(tmp_path):
    folder = tmp_path / "job"
    with runs.elastic(folder, "--length=480", "--epochs=4", "--linger=2", nproc=2) as job:
        job.start(0)
        assert job.wait_code(job.pods[0], seconds=60) == 0, job.report()
        assert "to join a group" not in job.pods[0].said(), job.report()
        written = runs.Written(folder)
        assert list(written.commits()) == list(range(1, 41))
        assert not written.repeated(), job.report()
        assert len(written.lines) == 80
