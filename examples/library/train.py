"""A script that uses the library: its processes keep what they have in memory while others come and go.

It fits a small network to what another, random one makes of random numbers. A change of size, or a lost pod, comes
between two steps: nothing is started again, no sample is trained twice. The checkpoint of each epoch is for the time
after the whole job was stopped. Run by hand, it goes on from its checkpoints, with any number of processes:

    torchrun --standalone --nproc-per-node=2 train.py --epochs 5
"""

import argparse
import time

import torch
from torch import nn

import elastic_worker as elastic

FEATURES = 16
TRAINED, TESTED = 4096, 1024


def main():
    """Say what the training consists of, take part, train."""
    options = parse_options()
    job = elastic.init(checkpoints=options.checkpoints)
    inputs, targets = (each.to(job.device) for each in make_samples())
    torch.manual_seed(1)
    model = job.wrap(nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    data = elastic.Sampler(TRAINED, global_batch=256, micro_batch=32, seed=1)
    state = job.state(model=model, optimizer=optimizer, data=data)
    job.restore(state)  # from a process that trains already, else from the newest checkpoint
    for epoch in job.epochs(options.epochs):
        for batch in job.batches(state.data):
            with job.step(state) as step:
                for micro in batch.micro:
                    loss = nn.functional.mse_loss(model(inputs[micro.indices]), targets[micro.indices])
                    step.backward(loss * micro.weight)
                time.sleep(options.pause)
                step.update(loss=loss)
        error = evaluate(job, model, inputs[TRAINED:], targets[TRAINED:])
        if job.rank == 0:
            print(f"epoch {epoch} on {job.world_size} processes: error = {error:.4f}", flush=True)
        job.checkpoint(state)


def parse_options():
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds of pretended work per step")
    parser.add_argument("--checkpoints", default="checkpoints", help="a folder that all machines see")
    return parser.parse_args()


def make_samples():
    """The same in each process: inputs and targets, first those to train with, then those to test with."""
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn(TRAINED + TESTED, FEATURES, generator=random)
    direction = torch.randn(FEATURES, 1, generator=random)
    return inputs, torch.tanh(inputs @ direction)


def evaluate(job, model, inputs, targets):
    """The mean squared error over all processes: each adds up its part."""
    evaluation = job.eval_batches(len(inputs), batch_size=128)
    model.eval()
    with torch.no_grad():
        for batch in evaluation:
            errors = (model(inputs[batch.indices]) - targets[batch.indices]).square()
            evaluation.add(error=errors.sum(), count=len(errors))
    model.train()
    return evaluation.result["error"] / evaluation.result["count"]


if __name__ == "__main__":
    main()
