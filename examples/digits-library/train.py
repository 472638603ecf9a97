"""Learns scikit-learn's digits with the library: 1,797 images of 8x8 pixels, which lie beside this script.

The library deals each global batch to the processes there are, and takes them from group to group between two steps.
Compare it with examples/digits-ddp, which learns the same and is started again at each change.

    torchrun --standalone --nproc-per-node=2 train.py --epochs 5
"""

import argparse
import gzip
import time
from pathlib import Path

import torch
from torch import nn

import elastic_worker as elastic

DIGITS = Path(__file__).with_name("digits.csv.gz")
TRAINED = 1408
"""The other 389 are tested."""


def main():
    """Say what the training consists of, take part, train."""
    options = parse_options()
    job = elastic.init(checkpoints=options.checkpoints)
    images, labels = (each.to(job.device) for each in read_digits())
    model = job.wrap(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = elastic.Sampler(TRAINED, global_batch=64, micro_batch=16, seed=1)
    state = job.state(model=model, optimizer=optimizer, data=data)
    job.restore(state)  # from a process that trains already, else from the newest checkpoint
    for epoch in job.epochs(options.epochs):
        for batch in job.batches(state.data):
            with job.step(state) as step:
                for micro in batch.micro:
                    loss = nn.functional.cross_entropy(model(images[micro.indices]), labels[micro.indices])
                    step.backward(loss * micro.weight)
                time.sleep(options.pause)
                step.update(loss=loss)
        accuracy = evaluate(job, model, images[TRAINED:], labels[TRAINED:])
        if job.rank == 0:
            print(f"epoch {epoch} on {job.world_size} processes: accuracy = {accuracy:.1%}", flush=True)
        job.checkpoint(state)


def parse_options():
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds of pretended work per step")
    parser.add_argument("--checkpoints", default="checkpoints", help="a folder that all machines see")
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


def evaluate(job, model, images, labels):
    """The share of the images that the model names rightly: each process counts its part."""
    evaluation = job.eval_batches(len(images), batch_size=64)
    model.eval()
    with torch.no_grad():
        for batch in evaluation:
            right = model(images[batch.indices]).argmax(1) == labels[batch.indices]
            evaluation.add(right=right.sum(), count=len(right))
    model.train()
    return evaluation.result["right"] / evaluation.result["count"]


if __name__ == "__main__":
    main()
