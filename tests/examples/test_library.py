"""The example of the library, by hand and under torchrun; in pods that come and go: `tests/cluster/test_library.py`."""

import re

import pytest

from tests.examples.torchrun import EXAMPLES, TOGETHER, run

pytestmark = [pytest.mark.programs, pytest.mark.timeout(240)]

SCRIPT = EXAMPLES / "library" / "train.py"
DOCUMENT = EXAMPLES.parent / "docs" / "library.md"
BEFORE_THE_LOOP = """
import torch
dataset = torch.randn(1000, 8)
model = torch.nn.Linear(8, 1)
def loss_of(model, rows):
    return (model(rows).squeeze(1) - rows.mean(1)).square().mean()
"""
AFTER_IT = "\nprint(f'epoch {data.epoch}, step {state.step}')\n"
EPOCH = re.compile(r"epoch (\d+) on (\d+) processes: error = (\d+\.\d+)$", re.MULTILINE)


def epochs(text):
    """Number, processes and error of each epoch that was told."""
    return [(int(number), int(processes), float(error)) for number, processes, error in EPOCH.findall(text)]


def test_the_loop_of_the_document_trains(tmp_path):
    (loop,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert loop.count("/checkpoints/run-1") == loop.count("epochs(90)") == 1
    loop = loop.replace("/checkpoints/run-1", "checkpoints").replace("epochs(90)", "epochs(3)")
    script = tmp_path / "train.py"
    script.write_text(BEFORE_THE_LOOP + loop + AFTER_IT)
    assert run(script, folder=tmp_path).splitlines() == ["epoch 3, step 12"]
    assert (tmp_path / "checkpoints" / "step-12").is_dir()


@pytest.mark.extended
def test_the_example_learns_alike_alone_and_under_torchrun_and_resumes_at_another_size(tmp_path):
    quick, longer = ("--epochs=2", "--pause=0"), ("--epochs=4", "--pause=0")
    (tmp_path / "alone").mkdir()
    alone = epochs(run(SCRIPT, *longer, folder=tmp_path / "alone"))
    two = epochs(run(*TOGETHER, SCRIPT, *quick, folder=tmp_path))
    rest = epochs(run(SCRIPT, *longer, folder=tmp_path))
    assert [(number, size) for number, size, _ in two] == [(0, 2), (1, 2)]
    # The checkpoint is of the end of epoch 1, whose evaluation comes again.
    assert [(number, size) for number, size, _ in rest] == [(1, 1), (2, 1), (3, 1)]
    assert [error for *_, error in two + rest[1:]] == pytest.approx([error for *_, error in alone], abs=2e-4)
    assert alone[-1][2] < alone[0][2] / 1.5
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"latest", "step-48", "step-64"}
