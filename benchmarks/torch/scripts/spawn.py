# mypy: disable-error-code="import-not-found, no-untyped-call"
"""Trains as ddp.py does, in processes that this script starts itself.

python spawn.py --processes 2 --digits digits.csv.gz
"""

import argparse
import socket

import ddp
import torch.multiprocessing as mp
import training
from torch import distributed as dist


def main() -> None:
    options = training.parse_options()
    mp.spawn(process, args=(options, free_port()), nprocs=options.processes)


def process(rank: int, options: argparse.Namespace, port: int) -> None:
    """The function of each process."""
    training.prepared(options)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group(training.backend(), init_method=address, rank=rank, world_size=options.processes)
    ddp.train(options, local_rank=rank)
    dist.destroy_process_group()


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
