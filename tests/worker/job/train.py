"""A plain training script of the tests: it does not use the worker package, and records its steps.

    train.py FOLDER --epochs 100 --steps 10 --pause 0.02 [--fail-at 35 --fail-rank 1] ...

Rank 0 saves the last finished epoch to FOLDER/checkpoint.pt. Beside what script.py writes down of each step: rank,
world, epoch, step.
"""

import argparse
import io
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from script import account, add_failures, fail_if_asked, is_over, write
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    options = parse()
    if options.on_term:
        signal.signal(signal.SIGTERM, lambda *_: on_term(options))
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    parallel = DistributedDataParallel(model)
    saved, second = options.folder / "checkpoint.pt", options.folder / "checkpoints" / "optimizer.pt"
    if options.save_second:
        saved = second.with_name("model.pt")
    first = torch.load(saved)["epoch"] + 1 if saved.exists() else 0
    if second.exists():
        torch.load(second)
    with account(options.folder) as log:
        for epoch in range(first, options.epochs):
            if is_over(options.folder, epoch):
                break
            for step in range(options.steps):
                fail_if_asked(options, rank, epoch * options.steps + step)
                fail_in_each_epoch(options, rank, epoch, step)
                optimizer.zero_grad()
                parallel(torch.randn(4, 32)).sum().backward()
                optimizer.step()
                time.sleep(pause(options, step))
                write(log, rank=rank, world=dist.get_world_size(), epoch=epoch, step=step)
            if rank == 0 and epoch < options.save_until:
                save(saved, epoch, model, pause=options.save_pause, in_place=options.save_in_place)
                if options.save_second:
                    save(second, epoch, model, pause=options.save_second, in_place=True)
    lingered = options.folder / "lingered"
    if rank == dist.get_world_size() - 1 and not (options.linger_once and lingered.exists()):
        lingered.touch()
        linger(options)
    (options.folder / f"finished-{rank}").touch()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--pause", type=float, default=0.02)
    parser.add_argument("--save-pause", type=float, default=0.0)
    parser.add_argument("--save-in-place", action="store_true")
    parser.add_argument("--save-until", type=int, default=100_000)
    parser.add_argument("--save-second", type=float, default=0.0)
    add_failures(parser)
    parser.add_argument("--fail-each-epoch", action="store_true")
    parser.add_argument("--linger", type=float, default=0.0)
    parser.add_argument("--linger-once", action="store_true")
    parser.add_argument("--on-term", default="")
    return parser.parse_args()


def on_term(options):
    """Install a handler as scripts do: it ignores the signal, or saves and exits."""
    (options.folder / f"told-{os.getpid()}").touch()
    if options.on_term == "exit":
        sys.exit(7)


def linger(options):
    """Wait for some seconds, or until the test writes to the pipe FOLDER/enough, if that exists."""
    pipe = options.folder / "enough"
    pipe.read_text() if pipe.exists() else time.sleep(options.linger)


def pause(options, step):
    """The duration of a step; the first one of each epoch may have another."""
    path = options.folder / "first-step-seconds"
    return float(path.read_text()) if step == 0 and path.exists() else options.pause


def fail_in_each_epoch(options, rank, epoch, step):
    """Fail once in the last step of each epoch, if the test requires it."""
    done = options.folder / f"failed-{epoch}"
    if options.fail_each_epoch and rank == 0 and step == options.steps - 1 and not done.exists():
        done.touch()
        raise ValueError("once in each epoch")


def save(path, epoch, model, *, pause, in_place):
    """Save safely, under another name first; or in place, so that a kill in the middle destroys the checkpoint."""
    if in_place:
        content = io.BytesIO()
        torch.save({"epoch": epoch, "model": model.state_dict()}, content)
        with path.open("wb") as file:
            file.write(content.getvalue()[:1000])
            file.flush()
            time.sleep(pause)
            file.write(content.getvalue()[1000:])
        return
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with unfinished.open("wb") as file:
        torch.save({"epoch": epoch, "model": model.state_dict()}, file)
        time.sleep(pause)
    unfinished.replace(path)


if __name__ == "__main__":
    main()
