"""One script in all surroundings, and its checkpoint under another world size."""

import json

import pytest

from tests.worker.equality import runs
from tests.worker.equality.counting import assert_exactly_once
from tests.worker.job.local import free_port

pytestmark = pytest.mark.extended

SHAPE = {"length": 480, "batch": 48, "micro": 4}
ARGUMENTS = [*(f"--{key}={value}" for key, value in SHAPE.items()), "--pause=0"]
TWO_EPOCHS = [*ARGUMENTS, "--epochs=2"]
FAILS = [*TWO_EPOCHS, "--checkpoint-every=7", "--fail-at=13"]


def as_one_process(folder, *arguments):
    return [runs.start([runs.LIBRARY, folder, *arguments])]


def under_torchrun(folder, *arguments):
    own = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    return [runs.start([*own, runs.LIBRARY, folder, *arguments])]


def under_srun(folder, *arguments):
    own = {"SLURM_NTASKS": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [runs.LIBRARY, folder, *arguments]
    return [runs.start(command, **own, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank)) for rank in range(2)]


SURROUNDINGS = {"one process": (1, as_one_process), "torchrun": (2, under_torchrun), "srun": (2, under_srun)}
NEXT = {"one process": "torchrun", "torchrun": "one process", "srun": "one process"}


def carry_out(start, folder, *arguments):
    """Gives what was written, in this run alone, and whether it ended well."""
    for old in folder.glob("steps-*.jsonl"):
        old.unlink()
    ended = [runs.end(process) for process in start(folder, *arguments)]
    return runs.Written(folder, output="\n".join(output for _, output in ended)), not any(code for code, _ in ended)


@pytest.mark.parametrize("where", SURROUNDINGS)
def test_a_run_that_fails_goes_on_from_its_checkpoint_in_another_world(tmp_path, where):
    world, start = SURROUNDINGS[where]
    before, well = carry_out(start, tmp_path, *FAILS)
    assert not well
    assert "the loss is NaN in step 13" in before.output
    assert before.worlds() == [world], before.output
    world, start = SURROUNDINGS[NEXT[where]]
    after, well = carry_out(start, tmp_path, *TWO_EPOCHS)
    assert well, after.output
    assert after.worlds() == [world]
    assert min(after.commits()) == 8, "the checkpoint is of step 7"
    kept = {step: lines for step, lines in before.commits().items() if step <= 7}
    assert_exactly_once({**kept, **after.commits()}, **SHAPE, steps=20)


def test_a_run_that_has_ended_has_nothing_left_to_do(tmp_path):
    done, well = carry_out(as_one_process, tmp_path, *TWO_EPOCHS)
    assert well
    assert max(done.commits()) == 20
    again, well = carry_out(as_one_process, tmp_path, *TWO_EPOCHS)
    assert well, again.output
    assert json.dumps(again.lines) == "[]"
