# mypy: disable-error-code="import-not-found, no-untyped-call"
"""The training, written as in torch's documentation. See toy.Pace for the command line."""

from itertools import count

import torch
import toy
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DistributedSampler


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(toy.make_model())
    optimizer = torch.optim.AdamW(model.parameters())
    samples = toy.make_samples()
    sampler = DistributedSampler(samples)
    train(model, optimizer, samples, sampler)
    dist.destroy_process_group()


def train(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, samples: torch.Tensor, sampler: DistributedSampler
) -> None:
    pace = toy.Pace()
    for epoch in count():
        sampler.set_epoch(epoch)
        for indices in BatchSampler(sampler, toy.BATCH, drop_last=True):
            optimizer.zero_grad()
            loss = toy.loss_of(model, samples[indices])
            loss.backward()
            optimizer.step()
            if pace.is_over():
                return


if __name__ == "__main__":
    main()
