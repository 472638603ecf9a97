"""A toy that torchrun may stop and start again at any time, on any number of machines.

It fits a tiny network to random numbers, one step and one checkpoint per epoch. Whenever a machine comes or goes,
torchrun starts this script anew in every process: what is to survive must be in the checkpoint.

    torchrun --standalone --nproc-per-node=2 train.py --pause 0.1
"""

import argparse
import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

GROUP_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def main():
    """Join the group, train, leave the group."""
    options = parse_options()
    environment = {name: os.environ[name] for name in GROUP_VARIABLES}  # torchrun sets them
    say(f"[{os.getpid()}] Initializing process group with: {environment}")
    # gloo listens on the address that this machine's host name resolves to; in a pod that is the pod's own. Where it
    # is not (some laptops resolve it to nothing useful), name the interface: GLOO_SOCKET_IFNAME=eth0.
    # The time-out is what ends the wait for a machine that lost its power: it says nothing, and torchrun asks nobody.
    timeout = timedelta(seconds=options.timeout)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=timeout)
    train(options, local_rank=int(os.environ["LOCAL_RANK"]))
    dist.destroy_process_group()


def parse_options():
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds of pretended work per epoch")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds to wait for other processes")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"), help="a file that all machines see")
    return parser.parse_args()


def train(options, *, local_rank):
    """Go on after the last epoch that was saved, up to the last one wanted."""
    rank = dist.get_rank()
    say("train worker starting...")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    first_epoch = load(options.checkpoint, model, optimizer, device=device)
    parallel_model = DistributedDataParallel(model)
    loss_of = nn.MSELoss()

    for epoch in range(first_epoch, options.epochs):
        inputs, targets = torch.randn(20, 10, device=device), torch.randn(20, 5, device=device)
        optimizer.zero_grad()
        loss = loss_of(parallel_model(inputs), targets)
        loss.backward()  # the processes average their gradients here
        optimizer.step()
        say(f"[{os.getpid()}] epoch {epoch} (rank = {rank}, local_rank = {local_rank}) loss = {loss.item():.4f}")
        # One process saves for all, after it has printed the epoch. So no epoch that was saved is missing in its log.
        if rank == 0:
            save(options.checkpoint, epoch, model, optimizer)
        time.sleep(options.pause)


def load(path, model, optimizer, *, device):
    """Take over what was saved, if anything was. Returns the epoch to go on with."""
    if not path.exists():
        return 0
    say(f"load checkpoint from {path}")
    checkpoint = torch.load(path, map_location=device)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return checkpoint["epoch"] + 1


def save(path, epoch, model, optimizer):
    """Write a checkpoint that others see whole or not at all, even if this process is killed while it writes."""
    checkpoint = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    # A name that no other process uses: one that was told to go may still be writing its own.
    unfinished = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}")
    torch.save(checkpoint, unfinished)
    unfinished.replace(path)


def say(line):
    """Print a line in one piece: all processes of a pod write to the same log."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
