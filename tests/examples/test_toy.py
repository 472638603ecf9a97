"""The toy of the tutorials, run by a real torchrun; `tests/cluster/test_toy.py` changes its size in pods."""

import re
from pathlib import Path

import pytest

from tests.examples.folders import by_hand
from tests.examples.torchrun import EXAMPLES, run, run_line

pytestmark = pytest.mark.programs

HELPER = Path(__file__).parent / "kill_while_saving.py"
TOY = EXAMPLES / "toy" / "train.py"
EPOCH = re.compile(r"\[\d+] epoch (\d+) \(rank = (\d+), local_rank = (\d+)\) loss = \d+\.\d+")


def test_all_processes_train_all_epochs_and_save_one_file_by_hand_as_the_readme_says(tmp_path):
    (line,) = by_hand("toy")
    lines = run_line(line, folder=tmp_path).splitlines()

    said = {tuple(map(int, found.groups())) for line in lines if (found := EPOCH.fullmatch(line))}
    assert said == {(epoch, rank, rank) for epoch in range(3) for rank in range(2)}
    assert lines.count("train worker starting...") == 2
    groups = [line for line in lines if "] Initializing process group with: {" in line]
    assert len(groups) == 2
    assert all(f"'{name}'" in line for line in groups for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"))
    assert not any(line.startswith("load checkpoint") for line in lines)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.pt", "examples"}


def test_a_checkpoint_is_whole_whenever_its_writer_is_killed(tmp_path):
    run(HELPER, TOY.parent, tmp_path / "checkpoint.pt", folder=tmp_path)
