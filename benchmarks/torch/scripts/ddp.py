# mypy: disable-error-code="import-not-found, no-untyped-call"
"""Trains with DistributedDataParallel in processes that torchrun, or the launcher of Elastic mode, has started.

torchrun --standalone --nproc-per-node=2 ddp.py --digits digits.csv.gz
"""

import argparse
import os

import training
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    options = training.parse_options()
    dist.init_process_group(training.backend())
    train(options, local_rank=int(os.environ["LOCAL_RANK"]))
    dist.destroy_process_group()


def train(options: argparse.Namespace, *, local_rank: int) -> None:
    """Train in the existing group."""
    device = training.device_of(local_rank)
    model = training.make_model(options).to(device)
    parallel = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    training.fit(parallel, options, device=device)


if __name__ == "__main__":
    main()
