"""A plain training script that saves only when it is asked to: asked.py FOLDER --by call|file|signal.

    --together    each rank saves a part, and none goes on before all have: ranks that save at different steps hang

Rank 0 saves the number of steps done to FOLDER/checkpoint.pt. Beside what script.py writes down of each step: rank,
world, epoch, step (of all from 0 on), and `asked`.
"""

import argparse
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from script import account, is_over, write
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 10
"""In an epoch."""


def main():
    options = parse()
    is_asked = WAYS[options.by]()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    parallel = DistributedDataParallel(model)
    saved = options.folder / "checkpoint.pt"
    step = torch.load(saved)["steps"] if saved.exists() else 0
    with account(options.folder) as log:
        while not is_over(options.folder, step // STEPS):
            optimizer.zero_grad()
            parallel(torch.randn(2, 8)).sum().backward()
            optimizer.step()
            time.sleep(options.pause * (1 + rank % 3))
            asked = is_asked()
            write(log, rank=rank, world=dist.get_world_size(), epoch=step // STEPS, step=step, asked=asked)
            step += 1
            if asked and options.together:
                save(options.folder / f"part-{rank}.pt", step)
                dist.barrier()
            if asked and rank == 0 and not options.deaf:
                save(saved, step)
    (options.folder / f"finished-{rank}").touch()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--by", choices=list(WAYS), default="call")
    parser.add_argument("--pause", type=float, default=0.01)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--deaf", action="store_true")
    return parser.parse_args()


def by_call():
    import elastic_worker as elastic

    return elastic.should_save


def by_file():
    def is_asked():
        path = Path(os.environ["ELASTIC_SAVE_FILE"])
        asked = path.exists()
        path.unlink(missing_ok=True)
        return asked

    return is_asked


def by_signal():
    asked = []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
    return lambda: bool(asked) and asked.pop()


WAYS = {"call": by_call, "file": by_file, "signal": by_signal}


def save(path, steps):
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with unfinished.open("wb") as file:
        torch.save({"steps": steps}, file)
    unfinished.replace(path)


if __name__ == "__main__":
    main()
