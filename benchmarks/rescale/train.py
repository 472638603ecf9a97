# mypy: disable-error-code="import-not-found, no-untyped-call"
"""The measured plain training script: it loads its checkpoint at its start and saves one every few epochs.

See toy.py for the command line; it saves every epoch by default.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import toy
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 64


def main() -> None:
    options = toy.options(save_every=1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(toy.Model(options.megabytes))
    optimizer = toy.optimizer_of(model)
    saved = options.folder / "checkpoint.pt"
    epoch = load(saved, model, optimizer)
    steps = toy.Steps(options.folder)
    while True:
        for step in range(toy.STEPS):
            train(model, optimizer, options)
            steps.write(step=epoch * toy.STEPS + step, rank=dist.get_rank(), world=dist.get_world_size())
        if dist.get_rank() == 0 and epoch % options.save_every == 0:
            save(saved, epoch, model, optimizer)
        epoch += 1


def train(model: nn.Module, optimizer: torch.optim.Optimizer, options: argparse.Namespace) -> None:
    optimizer.zero_grad()
    model(torch.randn(BATCH, toy.WIDTH)).square().mean().backward()
    optimizer.step()
    toy.work(options)


def load(saved: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The epoch to begin with."""
    if not saved.exists():
        return 0
    state = torch.load(saved)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"]) + 1


def save(saved: Path, epoch: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    unfinished = saved.with_suffix(".tmp")
    torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, unfinished)
    unfinished.replace(saved)


if __name__ == "__main__":
    main()
