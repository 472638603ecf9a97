"""A script as torchrun's users write it: nothing in it is for Elastic mode.

It fits a tiny network to random numbers: many steps in an epoch, and a checkpoint after each. When pods come or go, its
processes are stopped right after a checkpoint and started anew in a fraction of a second; so it loads its checkpoint
when it starts, as it would have to under torchrun, and no epoch is trained twice.

    torchrun --standalone --nproc-per-node=2 train.py --epochs 5
"""

import argparse
import os
import socket
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    """Join the group, train, leave the group."""
    options = parse_options()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    model = nn.Linear(10, 5).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    first_epoch = load(options.checkpoint, model, optimizer, device=device)
    parallel_model = DistributedDataParallel(model)
    for epoch in range(first_epoch, options.epochs):
        loss = train_epoch(parallel_model, optimizer, options, device=device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} on {dist.get_world_size()} processes: loss = {loss:.4f}", flush=True)
            save(options.checkpoint, epoch, model, optimizer)
    dist.destroy_process_group()


def parse_options():
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20, help="of an epoch")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds of pretended work per step")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"), help="a file that all machines see")
    return parser.parse_args()


def train_epoch(model, optimizer, options, *, device):
    """All steps of one epoch. Returns the last step's loss."""
    loss_of = nn.MSELoss()
    for _ in range(options.steps):
        inputs, targets = torch.randn(20, 10, device=device), torch.randn(20, 5, device=device)
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()  # the processes average their gradients here
        optimizer.step()
        time.sleep(options.pause)
    return loss.item()


def load(path, model, optimizer, *, device):
    """Take over what was saved, if anything was. Returns the epoch to go on with."""
    if not path.exists():
        return 0
    checkpoint = torch.load(path, map_location=device)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return checkpoint["epoch"] + 1


def save(path, epoch, model, optimizer):
    """Write a checkpoint that others see whole or not at all, even if this process is killed while it writes."""
    checkpoint = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    unfinished = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}")
    torch.save(checkpoint, unfinished)
    unfinished.replace(path)


if __name__ == "__main__":
    main()
