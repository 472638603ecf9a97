"""A training on a GPU through the library: its state in checkpoints, its random numbers, its scaled losses."""

import random

import pytest
import torch

import elastic_worker as elastic
from elastic_worker.library import seeds
from elastic_worker.library.checkpoints import Checkpoints

LENGTH, WIDTH = 96, 32


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch):
    """A process alone, whatever started the tests."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "ELASTIC_LIBRARY"):
        monkeypatch.delenv(name, raising=False)


def build():
    torch.manual_seed(4)
    layers = [torch.nn.Linear(WIDTH, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 1)]
    return torch.nn.Sequential(*layers)


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def scaler():
    """Overflows at first: in fp16 its scale is beyond what there is."""
    return torch.amp.GradScaler("cuda", init_scale=2.0**24, growth_interval=7)


def sampler():
    return elastic.Sampler(LENGTH, global_batch=24, micro_batch=8, seed=2)


def samples(device):
    return torch.randn(LENGTH, WIDTH, generator=torch.Generator().manual_seed(1)).to(device)


def loss_of(model, rows):
    with torch.autocast("cuda", dtype=torch.float16):
        return (model(rows).squeeze(1) - rows.mean(1)).square().mean()


def with_the_library(folder, *, epochs):
    """The state at the end; saved in the middle of the last epoch, and at the end."""
    job = elastic.init(checkpoints=folder)
    model = job.wrap(build())
    parts = {"model": model, "optimizer": optimizer_of(model), "scaler": scaler(), "data": sampler()}
    state = job.state(**parts)
    job.restore(state)
    rows = samples(job.device)
    for _ in job.epochs(epochs):
        for batch in job.batches(state.data):
            with job.step(state) as step:
                for micro in batch.micro:
                    step.backward(loss_of(model, rows[micro.indices]) * micro.weight)
                step.update(clip_norm=1.0)
        job.checkpoint(state, wait=True)
    return state


def in_plain_torch(*, epochs):
    """Model and scaler at the end."""
    device = torch.device("cuda", 0)
    model, data, rows = build().to(device), sampler(), samples(device)
    optimizer, scales = optimizer_of(model), scaler()
    for _ in range(epochs):
        while (share := data.share(0, 1)) is not None:
            for micro in share.micro:
                scales.scale(loss_of(model, rows[micro.indices]) * micro.weight).backward()
            scales.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scales.step(optimizer)
            scales.update()
            optimizer.zero_grad()
            data.commit(share)
        data.next_epoch()
    return model, scales


def tensors(value):
    """All tensors in nested dicts and lists, on the host."""
    if isinstance(value, torch.Tensor):
        return [value.detach().cpu()]
    children = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    return [tensor for child in children for tensor in tensors(child)]


def test_scaled_losses_train_as_in_plain_torch(tmp_path):
    state = with_the_library(tmp_path, epochs=6)
    model, scales = in_plain_torch(epochs=6)
    assert state.models[0].module[0].weight.device == torch.device("cuda", 0)
    assert state.scaler.state_dict() == scales.state_dict()
    assert scales.get_scale() < 2.0**24, "there was an overflow"
    assert not torch.equal(model[0].weight.cpu(), build()[0].weight), "not all steps were skipped"
    found, expected = state.models[0].module.state_dict(), model.state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_a_checkpoint_gives_back_every_bit_on_the_gpu_and_training_goes_on_from_it(tmp_path):
    saved = with_the_library(tmp_path, epochs=3)
    found = with_the_library(tmp_path, epochs=3)
    before, after = tensors(saved.capture()), tensors(found.capture())
    assert found.step == saved.step == 12
    assert len(before) == len(after) > 15
    assert all(map(torch.equal, before, after))
    assert found.objects["optimizer"].state_dict()["state"][0]["exp_avg"].device.type == "cuda"
    assert found.scaler.get_scale() == saved.scaler.get_scale()
    assert with_the_library(tmp_path, epochs=4).step == 16


def test_a_save_has_the_values_of_its_moment_though_the_gpu_goes_on(tmp_path):
    """Staged in pinned memory by copies that the call waits for."""
    tensor = torch.zeros(8_000_000, device="cuda")
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2, 3):
        tensor.fill_(step)
        checkpoints.save({"tensor": tensor}, step=step, order=(0, 1))
        tensor.fill_(-1.0)
    checkpoints.wait()
    found = checkpoints.newest()
    loaded = checkpoints.load(found)["tensor"]
    assert (found.step, loaded.min().item(), loaded.max().item()) == (3, 3.0, 3.0)
    into = {"tensor": torch.empty_like(tensor)}
    assert checkpoints.load(found, {"tensor": into["tensor"]})["tensor"].is_cuda


def test_dropout_on_the_gpu_follows_the_micro_batch():
    micro = next(iter(sampler().share(0, 1).micro))
    drawn = []
    for _ in range(2):
        torch.rand(random.randrange(1, 9), device="cuda")
        seeds.seed_for(micro)
        drawn.append(torch.nn.functional.dropout(torch.ones(1000, device="cuda")))
    assert torch.equal(*drawn)
