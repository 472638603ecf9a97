# mypy: disable-error-code="import-not-found, no-untyped-call"
"""The plain training script that is measured: it loads its checkpoint at start and saves one every epoch of ten steps.

    train.py FOLDER [--busy]

A step is a small matrix product, its gradients averaged over all processes, and a sleep of 50 ms; with --busy it
computes for about as long instead. After each step a line of JSON goes to FOLDER/steps-POD.jsonl: time (the machine's
monotonic seconds), pid, rank, world, step (counted over all epochs).
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 10
STEP_SECONDS = 0.05
BUSY_PRODUCTS = 60


def main() -> None:
    folder, busy = Path(sys.argv[1]), "--busy" in sys.argv
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    saved = folder / "checkpoint.pt"
    epoch = load(saved, model, optimizer)
    with (folder / f"steps-{os.environ['BENCH_POD']}.jsonl").open("a", buffering=1) as log:
        while True:
            for step in range(STEPS):
                train(model, optimizer, busy=busy)
                line = {"time": time.monotonic(), "pid": os.getpid(), "step": epoch * STEPS + step}
                log.write(json.dumps({**line, "rank": dist.get_rank(), "world": dist.get_world_size()}) + "\n")
            if dist.get_rank() == 0:
                save(saved, epoch, model, optimizer)
            epoch += 1


def train(model: nn.Module, optimizer: torch.optim.Optimizer, *, busy: bool) -> None:
    optimizer.zero_grad()
    model(torch.randn(64, 256)).square().mean().backward()
    optimizer.step()
    if not busy:
        time.sleep(STEP_SECONDS)
        return
    product = torch.eye(256)
    for _ in range(BUSY_PRODUCTS):
        product = product @ product


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
