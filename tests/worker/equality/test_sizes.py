"""A job that goes through sizes 4, 2, 3, 1, 4 computes what a job of one size does."""

import statistics

import pytest

from tests.worker.equality import runs

ARGUMENTS = ["--models", "mlp,conv,mlp32,conv32", "--length", 1200, "--epochs", 8]
STEPS = 200


def change_sizes(folder):
    """4 -> 2 -> 3 -> 1 -> 4, by planned leaves and by pods that join; gives what was written."""
    folder.mkdir()
    with runs.elastic(folder, *ARGUMENTS) as job:
        grow(job, 4, 0, 1, 2, 3)
        leave(job, 2, 3)
        wait_for(job, 2)
        grow(job, 3, 4)
        leave(job, 1, 4)
        wait_for(job, 1)
        grow(job, 4, 5, 6, 7)
        runs.set_pace(folder, 0)
        for index in (0, 5, 6, 7):
            assert job.wait_code(job.pods[index], seconds=60) == 0, job.report()
    return runs.Written(folder)


def grow(job, world, *indices):
    """Start pods, and train on with them. Few steps pass until they are in, however long they take to import torch."""
    runs.set_pace(job.folder, "hold")
    job.start(*indices)
    ready = [job.folder / f"ready-{job.pods[index].name}" for index in indices]
    job.wait("their scripts", lambda: all(path.exists() for path in ready))
    runs.set_pace(job.folder, 0.3)
    wait_for(job, world, steps=1)
    runs.set_pace(job.folder, 0.1)
    wait_for(job, world)


def leave(job, *indices):
    for index in indices:
        job.pods[index].terminate()
    job.write_membership(*(index for index, pod in job.pods.items() if pod.code is None and index not in indices))


def wait_for(job, world, *, steps=5):
    """Until the latest generation has this size, and has done so many steps."""

    def trains():
        lines = job.steps()
        last = max((line["generation"] for line in lines), default=0)
        mine = {line["step"] for line in lines if line["generation"] == last and line["world"] == world}
        return len(mine) >= steps

    job.wait(f"{steps} steps of {world} processes", trains)


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    return change_sizes(tmp_path_factory.mktemp("sizes") / "changed")


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    """Runs of one size each, by what is different: they add up the same numbers in another order."""
    folder = tmp_path_factory.mktemp("fixed")
    sizes = {f"{world} processes": (world, ARGUMENTS) for world in (1, 2, 3, 4)}
    return runs.several(folder, {**sizes, "other micro-batches": (1, [*ARGUMENTS, "--micro", 8])})


def test_all_sizes_were_there_in_the_middle_of_the_training_and_cost_no_step(changed):
    worlds = iter(changed.worlds())
    assert all(world in worlds for world in (4, 2, 3, 1, 4)), changed.worlds()
    assert list(changed.commits()) == list(range(1, STEPS + 1))
    assert not changed.repeated()


@pytest.mark.parametrize("name", ["mlp", "conv"])
def test_in_fp64_the_parameters_at_the_end_are_those_of_any_fixed_size(changed, fixed, name):
    for what, run in fixed.items():
        distance = runs.farthest(changed.final(name), run.final(name))
        assert distance < 1e-12, what


@pytest.mark.parametrize("name", ["mlp32", "conv32"])
def test_in_fp32_the_first_losses_are_those_of_any_fixed_size(changed, fixed, name):
    for what, run in fixed.items():
        pairs = zip(changed.losses(name)[:20], run.losses(name)[:20], strict=True)
        assert max(abs(one - other) for one, other in pairs) < 1e-5, what


@pytest.mark.parametrize("name", ["mlp32", "conv32"])
def test_in_fp32_the_last_epochs_loss_is_as_far_from_fixed_sizes_as_those_are_from_each_other(changed, fixed, name):
    """Rounding decides on it, and the fixed sizes show by how much."""
    per_epoch = STEPS // 8
    losses = {what: statistics.mean(run.losses(name)[-per_epoch:]) for what, run in fixed.items()}
    own = statistics.mean(changed.losses(name)[-per_epoch:])
    spread = max(losses.values()) - min(losses.values())
    print(name, own, losses, spread)
    assert spread > 0
    assert abs(own - statistics.median(losses.values())) <= 3 * spread


def test_every_rank_ends_with_the_same_parameters(changed):
    for name in ("mlp", "conv", "mlp32", "conv32"):
        assert all(runs.farthest(changed.final(name, rank), changed.final(name)) == 0 for rank in range(4))


def test_newcomers_draw_what_the_others_draw_around_a_step(changed, fixed):
    drawn = [
        {step: {tuple(line["drawn"]) for line in lines} for step, lines in run.commits().items()}
        for run in (changed, fixed["4 processes"])
    ]
    assert drawn[0] == drawn[1]
    assert all(len(of_step) == 1 for of_step in drawn[1].values())
