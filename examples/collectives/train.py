"""A tour of the collectives: each round does every one of them, and compares what came with what must come.

Rank r of n gives values that say whose they are, so each result can be written down beforehand. To go on with another
number of processes, only the number of the round is saved.

    torchrun --standalone --nproc-per-node=2 train.py --epochs 3
"""

import argparse
import os
import socket
import time
from pathlib import Path

import torch
import torch.distributed as dist


def main():
    """Join the group, make the rounds, leave the group."""
    options = parse_options()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        torch.set_default_device(device)
    rank, size = dist.get_rank(), dist.get_world_size()
    for epoch in range(load(options.checkpoint), options.epochs):
        for visit in TOUR:
            came, must_come = visit(rank, size)
            assert came == must_come, f"{visit.__name__} on rank {rank} of {size}: {came} instead of {must_come}"
        dist.barrier()  # nobody goes on before all are here
        if rank == 0:
            print(f"epoch {epoch} on {size} processes: {len(TOUR)} collectives gave what they must", flush=True)
            save(options.checkpoint, epoch)
        time.sleep(options.pause)
    dist.destroy_process_group()


def parse_options():
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100, help="rounds to make")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two rounds")
    parser.add_argument("--checkpoint", type=Path, default=Path("round.txt"), help="a file that all machines see")
    return parser.parse_args()


def broadcast(rank, size):
    """All get what one rank has, here the last one."""
    value = torch.tensor([float(rank)])
    dist.broadcast(value, src=size - 1)
    return value.tolist(), [size - 1]


def all_reduce(rank, size):
    """All get the sum (or the maximum ...) over the ranks. DistributedDataParallel averages gradients by it."""
    total, largest = torch.tensor([float(rank)]), torch.tensor([float(rank)])
    dist.all_reduce(total)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return [total.item(), largest.item()], [size * (size - 1) / 2, size - 1]


def reduce(rank, size):
    """One rank gets the sum; what the others have then is not defined."""
    value = torch.tensor([float(rank)])
    dist.reduce(value, dst=0)
    return (value.item(), size * (size - 1) / 2) if rank == 0 else (None, None)


def gather(rank, size):
    """One rank gets a tensor of each."""
    parts = [torch.zeros(1) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.tensor([float(rank)]), parts, dst=0)
    return ([part.item() for part in parts], list(range(size))) if rank == 0 else (None, None)


def all_gather(rank, size):
    """All get a tensor of each. FSDP gathers parameters by it."""
    parts = torch.zeros(size)
    dist.all_gather_into_tensor(parts, torch.tensor([float(rank)]))
    return parts.tolist(), list(range(size))


def scatter(rank, size):
    """One rank gives each a tensor of its own."""
    parts = [torch.tensor([10.0 * index]) for index in range(size)] if rank == 0 else None
    mine = torch.zeros(1)
    dist.scatter(mine, parts, src=0)
    return mine.item(), 10 * rank


def reduce_scatter(rank, size):
    """All get a part of the sum. FSDP shards gradients by it."""
    mine = torch.zeros(1)
    dist.reduce_scatter_tensor(mine, torch.arange(float(size)) + rank)
    return mine.item(), size * rank + size * (size - 1) / 2


def all_to_all(rank, size):
    """Each gives each a part. Mixtures of experts send tokens by it."""
    came = torch.zeros(size)
    dist.all_to_all_single(came, 10.0 * rank + torch.arange(float(size)))
    return came.tolist(), [10 * other + rank for other in range(size)]


def send_and_receive(rank, size):
    """From each rank to the next, in a ring. Pipelines hand on activations by it."""
    if size == 1:
        return None, None
    came = torch.zeros(1)
    right, left = (rank + 1) % size, (rank - 1) % size
    both = [dist.P2POp(dist.isend, torch.tensor([float(rank)]), right), dist.P2POp(dist.irecv, came, left)]
    for request in dist.batch_isend_irecv(both):
        request.wait()
    return came.item(), left


def all_gather_object(rank, size):
    """All get an object of each, pickled: for few and small things."""
    names = [None] * size
    dist.all_gather_object(names, {"rank": rank})
    return names, [{"rank": other} for other in range(size)]


TOUR = (
    broadcast,
    all_reduce,
    reduce,
    gather,
    all_gather,
    scatter,
    reduce_scatter,
    all_to_all,
    send_and_receive,
    all_gather_object,
)


def load(path):
    """The round to go on with."""
    return int(path.read_text()) + 1 if path.exists() else 0


def save(path, epoch):
    """Write a file that others see whole or not at all."""
    unfinished = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}")
    unfinished.write_text(str(epoch))
    unfinished.replace(path)


if __name__ == "__main__":
    main()
