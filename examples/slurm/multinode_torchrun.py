"""A trainer in the form that tutorials on several machines have: it saves a snapshot, and goes on from the last one.

torchrun --standalone --nproc-per-node=2 multinode_torchrun.py TOTAL_EPOCHS SAVE_EVERY [--batch_size 32]
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SNAPSHOT = Path("snapshot.pt")
"""In the folder that the job was submitted in, which all nodes see."""


class Trainer:
    """Trains on the samples that are this process's share."""

    def __init__(self, model, data, optimizer, *, save_every):
        self.local_rank, self.global_rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
        self.device = torch.device("cuda", self.local_rank) if torch.cuda.is_available() else torch.device("cpu")
        self.model, self.data, self.save_every = model.to(self.device), data, save_every
        self.optimizer, self.epochs_run = optimizer, 0
        if SNAPSHOT.exists():
            self.load_snapshot()
        self.model = DistributedDataParallel(self.model)

    def load_snapshot(self):
        """Go on after the last epoch that was saved."""
        snapshot = torch.load(SNAPSHOT, map_location=self.device)
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]
        print(f"Resuming training from snapshot at Epoch {self.epochs_run}", flush=True)

    def save_snapshot(self, epoch):
        """Written to another name first, so that a snapshot is whole or not there."""
        snapshot = {"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch + 1}
        unfinished = SNAPSHOT.with_suffix(f".{os.getpid()}")
        torch.save(snapshot, unfinished)
        unfinished.replace(SNAPSHOT)
        print(f"Epoch {epoch} | Training snapshot saved at {SNAPSHOT}", flush=True)

    def run_epoch(self, epoch):
        """Each sample once, on one of the processes."""
        steps, size = len(self.data), self.data.batch_size
        print(f"[GPU{self.global_rank}] Epoch {epoch} | Batchsize: {size} | Steps: {steps}", flush=True)
        self.data.sampler.set_epoch(epoch)
        for source, targets in self.data:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.model(source.to(self.device)), targets.to(self.device))
            loss.backward()
            self.optimizer.step()

    def train(self, total_epochs):
        """Up to that epoch, from the last snapshot on."""
        for epoch in range(self.epochs_run, total_epochs):
            self.run_epoch(epoch)
            if self.global_rank == 0 and epoch % self.save_every == 0:
                self.save_snapshot(epoch)


def main():
    """Join the group, train, leave the group."""
    parser = argparse.ArgumentParser(description="simple distributed training job")
    parser.add_argument("total_epochs", type=int, help="Total epochs to train the model")
    parser.add_argument("save_every", type=int, help="How often to save a snapshot")
    parser.add_argument("--batch_size", default=32, type=int, help="Input batch size on each device (default: 32)")
    options = parser.parse_args()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    samples = TensorDataset(torch.rand(2048, 20), torch.rand(2048, 1))
    data = DataLoader(samples, batch_size=options.batch_size, sampler=DistributedSampler(samples))
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    Trainer(model, data, optimizer, save_every=options.save_every).train(options.total_epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
