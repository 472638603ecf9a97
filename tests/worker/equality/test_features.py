"""What depends on how a batch is cut, or on what came before, is the same for each size, and as in plain torch."""

import pytest

from tests.worker.equality import plain, runs

pytestmark = pytest.mark.extended

BASE = {"epochs": 3, "length": 96, "batch": 24, "micro": 2}
CASES = {
    "accumulation": ("mlp", {}),
    "convolution": ("conv", {}),
    "norm": ("norm", {"whole": False, "micro": 4}),
    "dropout": ("dropout", {"whole": False}),
    "schedule": ("mlp", {"schedule": True}),
    "clip": ("conv", {"clip": 0.05}),
    "tail": ("mlp", {"length": 98}),
    "tail of norm": ("norm", {"length": 98, "whole": False, "micro": 4}),
    "short last micro-batch": ("mlp", {"length": 99}),
    "drop last": ("mlp", {"length": 98, "drop_last": True}),
    "scaler": ("mlp32", {"scaler": True, "magnify": 64.0}),
    "scaler and clip": ("mlp32", {"scaler": True, "magnify": 64.0, "clip": 0.05}),
    "autocast": ("mlp32", {"autocast": True}),
    "fsdp": ("mlp", {"fsdp": True, "length": 98, "micro": 4}),
}
"""Name -> the model, and what differs from BASE. Not `whole`: the model sees micro-batches, also in plain torch."""
TOLERANCE = {"autocast": 1e-2, "scaler": 1e-5, "scaler and clip": 1e-5}


def arguments(name):
    model, more = CASES[name]
    given = {key: value for key, value in {**BASE, **more}.items() if key != "whole"}
    words = [f"--{key.replace('_', '-')}" if value is True else f"--{key}={value}" for key, value in given.items()]
    return ["--models", model, *words]


ONLY_OF_THE_LIBRARY = ("fsdp",)
RUNS = [(name, world) for name in CASES for world in (1, 4) if world > 1 or name != "fsdp"]
"""Nothing is sharded by one process."""


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    """(name, world) -> the run."""
    cases = {f"{name} {world}": (world, arguments(name)) for name, world in RUNS}
    written = runs.several(tmp_path_factory.mktemp("features"), cases)
    return {key: written[f"{key[0]} {key[1]}"] for key in RUNS}


@pytest.mark.parametrize(("name", "world"), RUNS)
def test_the_library_trains_as_plain_torch_does(fixed, name, world):
    model, more = CASES[name]
    how = {key: value for key, value in {**BASE, **more}.items() if key not in ONLY_OF_THE_LIBRARY}
    expected = plain.train(model, **how).state_dict()
    distance = runs.farthest(fixed[name, world].final(model), expected, only=runs.is_parameter)
    print(name, world, distance)
    assert distance < TOLERANCE.get(name, 1e-12)


def test_the_scaler_skips_a_step_and_grows_as_in_plain_torch(fixed):
    ends = [fixed["scaler", world].end(rank)["scaler"] for world in (1, 4) for rank in range(world)]
    assert all(end == ends[0] for end in ends)
    assert ends[0]["scale"] == 2.0**108, "after one overflow and one growth"


def test_parts_of_a_tail_that_is_smaller_than_the_world_are_nobodys_or_one_ranks(fixed):
    lines = fixed["tail", 4].commits()
    tail = lines[5]
    assert sorted(index for line in tail for index in line["samples"]) == sorted(set(range(98)) - applied(lines, 1, 4))
    assert [len(line["samples"]) for line in sorted(tail, key=lambda line: line["rank"])] == [2, 0, 0, 0]


def applied(commits, first, last):
    return {index for step in range(first, last + 1) for line in commits[step] for index in line["samples"]}


def test_running_statistics_are_of_what_rank_0_saw(fixed):
    """Gradients see all micro-batches in each size; the statistics for evaluation are rank 0's, as in torch's DDP."""
    for world in (1, 4):
        model, more = CASES["norm"]
        expected = plain.train(model, **{**BASE, **more}, counted=lambda count, world=world: -(-count // world))
        expected = {key: value for key, value in expected.state_dict().items() if "num_batches" not in key}
        found = {key: value for key, value in fixed["norm", world].final("norm").items() if key in expected}
        assert runs.farthest(found, expected) < 1e-12


def test_what_a_script_draws_around_a_step_does_not_depend_on_rank_or_size(fixed):
    drawn = [
        {step: {tuple(line["drawn"]) for line in lines} for step, lines in fixed["dropout", world].commits().items()}
        for world in (1, 4)
    ]
    assert drawn[0] == drawn[1]
    assert all(len(of_step) == 1 for of_step in drawn[1].values())
    numbers = [number for of_step in drawn[1].values() for number in next(iter(of_step))[1:]]
    assert len({*numbers}) == len(numbers), "each step draws numbers of its own"
