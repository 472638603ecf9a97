"""Learns scikit-learn's digits with DistributedDataParallel: 1,797 images of 8x8 pixels, which lie beside this script.

All processes together take the same number of images per step, however many they are. Rank 0 saves after each epoch,
and the script goes on from there when it is started again.

    torchrun --standalone --nproc-per-node=2 train.py --epochs 5
"""

import argparse
import gzip
import os
import socket
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DIGITS = Path(__file__).with_name("digits.csv.gz")
TRAINED = 1408
"""The other 389 are tested."""


def main():
    """Join the group, train, leave the group."""
    options = parse_options()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    rank, processes = dist.get_rank(), dist.get_world_size()
    images, labels = (each.to(device) for each in read_digits())
    trained = TensorDataset(images[:TRAINED], labels[:TRAINED])
    sampler = DistributedSampler(trained, seed=1)
    batches = DataLoader(trained, batch_size=max(1, options.batch_size // processes), sampler=sampler)
    model = make_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first_epoch = load(options.checkpoint, model, optimizer, device=device)
    parallel_model = DistributedDataParallel(model)
    for epoch in range(first_epoch, options.epochs):
        sampler.set_epoch(epoch)  # another order in each epoch, the same for all processes
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel_model(inputs), targets)
            loss.backward()  # the processes average their gradients here
            optimizer.step()
            time.sleep(options.pause)
        # Each process tests its part.
        right = count_right(model, images[TRAINED + rank :: processes], labels[TRAINED + rank :: processes])
        dist.all_reduce(right)
        if rank == 0:
            accuracy = right.item() / len(images[TRAINED:])
            print(f"epoch {epoch} on {processes} processes: accuracy = {accuracy:.1%}", flush=True)
            save(options.checkpoint, epoch, model, optimizer)
    dist.destroy_process_group()


def parse_options():
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step, of all processes together")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds of pretended work per step")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"), help="a file that all machines see")
    return parser.parse_args()


def read_digits():
    """Images and labels, shuffled in the same way in each process. A line has 64 pixels (0 to 16) and a label."""
    with gzip.open(DIGITS, "rt") as file:
        rows = torch.tensor([[float(word) for word in line.split(",")] for line in file])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))]
    return rows[:, :64].reshape(-1, 1, 8, 8) / 16, rows[:, 64].long()


def make_model():
    """The same weights in each process."""
    torch.manual_seed(1)
    convolution = nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*convolution, nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))


@torch.no_grad()
def count_right(model, images, labels):
    """How many of the images the model names rightly."""
    return (model(images).argmax(1) == labels).sum()


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
