"""The toy of the tutorials, run by a real torchrun."""

import os
import signal
from pathlib import Path

import pytest

from tests.examples import torchrun

pytestmark = pytest.mark.programs

HELPER = Path(__file__).parent / "kill_while_saving.py"


def test_all_processes_train_all_epochs_and_one_of_them_saves(tmp_path):
    lines = torchrun.run("--epochs=2", folder=tmp_path)

    said = {(e.epoch, e.rank, e.local_rank) for e in torchrun.epochs(lines)}
    assert said == {(epoch, rank, rank) for epoch in range(2) for rank in range(2)}
    assert lines.count("train worker starting...") == 2
    groups = [line for line in lines if "] Initializing process group with: {" in line]
    assert len(groups) == 2
    assert all(f"'{name}'" in line for line in groups for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"))
    assert not any(line.startswith("load checkpoint") for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


@pytest.mark.extended
def test_a_second_run_goes_on_after_the_last_saved_epoch_with_another_world_size(tmp_path):
    checkpoint = tmp_path / "other.pt"
    torchrun.run("--epochs=2", f"--checkpoint={checkpoint}", folder=tmp_path, processes=1)
    lines = torchrun.run("--epochs=4", f"--checkpoint={checkpoint}", folder=tmp_path)

    assert lines.count(f"load checkpoint from {checkpoint}") == 2
    assert {(e.epoch, e.rank) for e in torchrun.epochs(lines)} == {(2, 0), (2, 1), (3, 0), (3, 1)}


@pytest.mark.extended
def test_a_killed_process_costs_no_more_than_the_epoch_it_was_in(tmp_path):
    lines = []
    killed_in = None
    with torchrun.start("--epochs=8", folder=tmp_path, max_restarts=1) as process:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            epoch = torchrun.parse_epoch(line)
            if killed_in is None and epoch and (epoch.rank, epoch.epoch) == (1, 3):
                killed_in = epoch.epoch
                os.kill(epoch.pid, signal.SIGKILL)
    assert process.returncode == 0, "\n".join(lines)

    restart = lines.index("load checkpoint from checkpoint.pt")
    again = sorted({e.epoch for e in torchrun.epochs(lines[restart:])})
    before = max(e.epoch for e in torchrun.epochs(lines[:restart]))
    assert killed_in <= again[0] <= before + 1, "at most the epoch in which the process died is repeated"
    assert again == list(range(again[0], 8))


def test_a_checkpoint_is_whole_whenever_its_writer_is_killed(tmp_path):
    result = torchrun.run_python(HELPER, torchrun.TOY.parent, tmp_path / "checkpoint.pt")
    assert result.returncode == 0, result.stdout + result.stderr
