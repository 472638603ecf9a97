"""A script that starts the processes of its machine itself, with torch.multiprocessing.spawn.

RANK and WORLD_SIZE are those of machines here, as in many older scripts: torchrun starts one process on each machine,
and that one starts a process per GPU. Without torchrun the script trains on one machine.

    python train.py --processes 2 --epochs 5
"""

import argparse
import os
import socket
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    """Start a process for each GPU of this machine, and wait until all have ended."""
    options = parse_options()
    machine, machines = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    mp.spawn(train, args=(machine, machines, options), nprocs=options.processes)


def parse_options():
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=max(1, torch.cuda.device_count()), help="on each machine")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds of pretended work per epoch")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"), help="a file that all machines see")
    return parser.parse_args()


def train(local_rank, machine, machines, options):
    """What each process does. It knows its own rank, and says so to init_process_group."""
    rank, world_size = machine * options.processes + local_rank, machines * options.processes
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, init_method="env://", rank=rank, world_size=world_size)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    first_epoch = load(options.checkpoint, model, optimizer, device=device)
    parallel_model = DistributedDataParallel(model)
    for epoch in range(first_epoch, options.epochs):
        inputs = torch.randn(64, 8, device=device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel_model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()  # the processes average their gradients here
        optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} on {world_size} processes: loss = {loss.item():.4f}", flush=True)
            save(options.checkpoint, epoch, model, optimizer)
        time.sleep(options.pause)
    dist.destroy_process_group()


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
