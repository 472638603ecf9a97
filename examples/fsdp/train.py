"""FullyShardedDataParallel as a plain script: parameters, gradients and Adam's state are split among the processes.

The checkpoint is one ordinary file: rank 0 gathers the whole state and saves it. Any number of processes can load it.

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
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Block(nn.Module):
    """Each is sharded by itself, so only one is gathered at a time."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, inputs):
        return inputs + self.layers(inputs)


def main():
    """Join the group, train, leave the group."""
    options = parse_options()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.manual_seed(1)
    model = nn.Sequential(*(Block(16) for _ in range(4)), nn.Linear(16, 1))
    model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    first_epoch = load(options.checkpoint, model, optimizer)
    for epoch in range(first_epoch, options.epochs):
        loss = train_epoch(model, optimizer, options, device=device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} on {dist.get_world_size()} processes: loss = {loss:.4f}", flush=True)
        save(options.checkpoint, epoch, model, optimizer)
    dist.destroy_process_group()


def parse_options():
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=5, help="of an epoch")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds of pretended work per step")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"), help="a file that all machines see")
    return parser.parse_args()


def train_epoch(model, optimizer, options, *, device):
    """All steps of one epoch. Returns the last step's loss."""
    for _ in range(options.steps):
        inputs = torch.randn(32, 16, device=device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs.sin().sum(1, keepdim=True))
        loss.backward()  # each process keeps the part of the averaged gradients that it needs
        optimizer.step()
        time.sleep(options.pause)
    return loss.item()


def load(path, model, optimizer):
    """Take over what was saved, if anything was: each process takes its part. Returns the epoch to go on with."""
    if not path.exists():
        return 0
    saved = torch.load(path, map_location="cpu")
    set_state_dict(
        model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"], options=WHOLE
    )
    return saved["epoch"] + 1


def save(path, epoch, model, optimizer):
    """All processes give their parts, rank 0 writes them to a file that others see whole or not at all."""
    model_state, optimizer_state = get_state_dict(model, optimizer, options=WHOLE)
    if dist.get_rank() != 0:
        return
    checkpoint = {"epoch": epoch, "model": model_state, "optimizer": optimizer_state}
    unfinished = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}")
    torch.save(checkpoint, unfinished)
    unfinished.replace(path)


if __name__ == "__main__":
    main()
