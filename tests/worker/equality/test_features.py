"""What depends on how a batch is cut, or on what came before, is the same for each size, and as in plain torch."""

import pytest

from tests.worker.equality import plain, runs

BASE = {"epochs": 3, "length": 96, "batch": 24, "micro": 2}
CASES = {
    "accumulation": ("mlp", {}),
    "convolution": ("conv", {}),
    "norm": ("norm", {"whole": False}),
    "dropout": ("dropout", {"whole": False}),
    "schedule": ("mlp", {"schedule": True}),
    "clip": ("conv", {"clip": 0.05}),
    "tail": ("mlp", {"length": 98}),
    "tail of norm": ("norm", {"length": 98, "whole": False}),
    "short last micro-batch": ("mlp", {"length": 99}),
    "drop last": ("mlp", {"length": 98, "drop_last": True}),
    "scaler": ("mlp32", {"scaler": True, "magnify": 64.0}),
    "scaler and clip": ("mlp32", {"scaler": True, "magnify": 64.0, "clip": 0.05}),
    "autocast": ("mlp32", {"autocast": True}),
}
"""Name -> the model, and what differs from BASE. Not `whole`: the model sees micro-batches, also in plain torch."""
TOLERANCE = {"autocast": 1e-2, "scaler": 1e-5, "scaler and clip": 1e-5}


def arguments(name):
    model, more = CASES[name]
    given = {key: value for key, value in {**BASE, **more}.items() if key != "whole"}
    words = [f"--{key.replace('_', '-')}" if value is True else f"--{key}={value}" for key, value in given.items()]
    return ["--models", model, *words]


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    """(name, world) -> the run."""
    keys = [(name, world) for name in CASES for world in (1, 4)]
    cases = {f"{name} {world}": (world, arguments(name)) for name, world in keys}
    written = runs.several(tmp_path_factory.mktemp("features"), cases)
    return {key: written[f"{key[0]} {key[1]}"] for key in keys}


@pytest.mark.parametrize("world", [1, 4])
@pytest.mark.parametrize("name", CASES)
def test_it_trains_as_plain_torch_does(fixed, name, world):
    model, more = CASES[name]
    expected = plain.train(model, **{**BASE, **more}).state_dict()
    distance = runs.farthest(fixed[name, world].final(model), expected, only=runs.is_parameter)
    print(name, world, distance)
    assert distance < TOLERANCE.get(name, 1e-12)
