"""Where groups change in place a hook of the library's reduces gradients; they are plain torch's all the same."""

import pytest

from tests.worker.equality import plain, runs
from tests.worker.equality.test_sizes import grow

SHAPE = {"epochs": 3, "length": 96, "batch": 24}


def test_two_backwards_in_a_step_and_a_hook_on_one_of_two_models_train_as_plain_torch_does(tmp_path):
    arguments = [f"--{key}={value}" for key, value in SHAPE.items()]
    with runs.elastic(tmp_path, "--models=mlp,conv", "--backwards=2", "--hooked=conv", "--micro=2", *arguments) as job:
        grow(job, 2, 0, 1)
        runs.set_pace(tmp_path, 0)
        assert [job.wait_code(job.pods[index], seconds=60) for index in (0, 1)] == [0, 0], job.report()
    written = runs.Written(tmp_path)
    assert written.worlds()[-1] == 2
    for name in ("mlp", "conv"):
        expected = plain.train(name, **SHAPE, micro=2).state_dict()
        assert runs.farthest(written.final(name), expected) == pytest.approx(0, abs=1e-12), name
