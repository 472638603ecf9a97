"""A trainer in the shape that many tutorials of torchrun have: it saves a snapshot now and then, and resumes from it.

It learns to recognize images of 8x8 pixels that it makes itself. How many epochs and how often to save are arguments:

    torchrun --standalone --nproc-per-node=2 train.py 10 2 --batch_size 32
"""

import argparse
import os
import socket
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CLASSES, IMAGES = 10, 1024


class Trainer:
    """Trains a model in this process and its peers; the snapshot is read where there is one."""

    def __init__(self, model, data, optimizer, *, save_every, snapshot, device):
        self.model, self.data, self.optimizer, self.device = model, data, optimizer, device
        self.save_every, self.snapshot, self.epochs_run = save_every, snapshot, 0
        if snapshot.exists():
            self.resume()
        self.parallel_model = DistributedDataParallel(model)

    def resume(self):
        """Go on where the snapshot was taken."""
        saved = torch.load(self.snapshot, map_location=self.device)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.epochs_run = saved["epochs_run"]
        print(f"resuming from the snapshot of epoch {self.epochs_run - 1}", flush=True)

    def save(self):
        """Write a snapshot that others see whole or not at all, even if this process is killed while it writes."""
        states = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        unfinished = self.snapshot.with_name(f"{self.snapshot.name}.{socket.gethostname()}-{os.getpid()}")
        torch.save({**states, "epochs_run": self.epochs_run}, unfinished)
        unfinished.replace(self.snapshot)

    def train(self, total_epochs, *, pause):
        """All epochs that are left."""
        for epoch in range(self.epochs_run, total_epochs):
            loss = self.run_epoch(epoch)
            self.epochs_run = epoch + 1
            if dist.get_rank() == 0:
                print(f"epoch {epoch} on {dist.get_world_size()} processes: loss = {loss:.4f}", flush=True)
                if self.epochs_run % self.save_every == 0 or self.epochs_run == total_epochs:
                    self.save()
            time.sleep(pause)

    def run_epoch(self, epoch):
        """Each process sees its part of the images, in another order in each epoch. Returns the last batch's loss."""
        self.data.sampler.set_epoch(epoch)
        for images, labels in self.data:
            loss = self.run_batch(images.to(self.device), labels.to(self.device))
        return loss.item()

    def run_batch(self, images, labels):
        """One step."""
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.parallel_model(images), labels)
        loss.backward()  # the processes average their gradients here
        self.optimizer.step()
        return loss


def make_data(batch_size):
    """The same images in each process: a random pattern for each class, and noise."""
    random = torch.Generator().manual_seed(1)
    patterns = torch.rand(CLASSES, 8, 8, generator=random)
    labels = torch.randint(CLASSES, (IMAGES,), generator=random)
    images = patterns[labels] + 0.3 * torch.randn(IMAGES, 8, 8, generator=random)
    dataset = TensorDataset(images, labels)
    return DataLoader(dataset, batch_size, sampler=DistributedSampler(dataset))


@record  # the traceback of a process that fails is written where torchrun and the operator find it
def main():
    """Join the group, train, leave the group."""
    options = parse_options()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, CLASSES)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = make_data(options.batch_size)
    trainer = Trainer(model, data, optimizer, save_every=options.save_every, snapshot=options.snapshot, device=device)
    trainer.train(options.total_epochs, pause=options.pause)
    dist.destroy_process_group()


def parse_options():
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("total_epochs", type=int, metavar="TOTAL_EPOCHS")
    parser.add_argument("save_every", type=int, metavar="SAVE_EVERY", help="epochs from one snapshot to the next")
    parser.add_argument("--batch_size", type=int, default=32, help="of each process")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds of pretended work per epoch")
    parser.add_argument("--snapshot", type=Path, default=Path("snapshot.pt"), help="a file that all machines see")
    return parser.parse_args()


if __name__ == "__main__":
    main()
