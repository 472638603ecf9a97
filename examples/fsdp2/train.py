"""FSDP2 (fully_shard) with sharded checkpoints: each process writes its part, and any number of processes reads them.

torch.distributed.checkpoint (DCP) cuts what was saved anew for the processes that load it: nobody ever holds the whole
state, neither to save it nor to go on with another number of processes.

    torchrun --standalone --nproc-per-node=2 train.py --epochs 5
"""

import argparse
import os
import shutil
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

KEPT = 2
"""How many checkpoints are kept."""


class Block(nn.Module):
    """Each is sharded by itself, so only one is gathered at a time."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, inputs):
        return inputs + self.layers(inputs)


class Training:
    """What is saved and loaded. DCP asks it for its state, and fills that in place."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.epoch = model, optimizer, -1

    def state_dict(self):
        """The parts of this process."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "epoch": self.epoch}

    def load_state_dict(self, state):
        """Take over the parts that are this process's now."""
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.epoch = state["epoch"]


def main():
    """Join the group, train, leave the group."""
    options = parse_options()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.manual_seed(1)
    model = nn.Sequential(*(Block(16) for _ in range(4)), nn.Linear(16, 1)).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in list(model)[:-1]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    training = Training(model, torch.optim.AdamW(model.parameters(), lr=0.003))
    load(options.checkpoints, training)
    for epoch in range(training.epoch + 1, options.epochs):
        loss = train_epoch(training, options, device=device)
        training.epoch = epoch
        if dist.get_rank() == 0:
            print(f"epoch {epoch} on {dist.get_world_size()} processes: loss = {loss:.4f}", flush=True)
        save(options.checkpoints, training)
    dist.destroy_process_group()


def parse_options():
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=5, help="of an epoch")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds of pretended work per step")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="a folder that all machines see")
    return parser.parse_args()


def train_epoch(training, options, *, device):
    """All steps of one epoch. Returns the last step's loss."""
    for _ in range(options.steps):
        inputs = torch.randn(32, 16, device=device)
        training.optimizer.zero_grad()
        loss = nn.functional.mse_loss(training.model(inputs), inputs.sin().sum(1, keepdim=True))
        loss.backward()  # each process keeps the part of the averaged gradients that it needs
        training.optimizer.step()
        time.sleep(options.pause)
    return loss.item()


def load(folder, training):
    """Take over the newest checkpoint, if there is one, whatever number of processes has saved it."""
    if found := complete(folder):
        dcp.load({"training": training}, checkpoint_id=found[-1])


def save(folder, training):
    """All processes write their parts; .metadata comes last, and makes the checkpoint complete."""
    dcp.save({"training": training}, checkpoint_id=folder / f"epoch-{training.epoch}")
    if dist.get_rank() == 0:
        for old in complete(folder)[:-KEPT]:
            (old / ".metadata").unlink()  # half a checkpoint is none
            shutil.rmtree(old)


def complete(folder):
    """The checkpoints that were written to their end, oldest first."""
    found = [path.parent for path in folder.glob("epoch-*/.metadata")]
    return sorted(found, key=lambda path: int(path.name.removeprefix("epoch-")))


if __name__ == "__main__":
    main()
