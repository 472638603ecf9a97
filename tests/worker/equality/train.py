"""Trains some small models with the library, side by side in one state, and writes down each commit and the end.

Each process appends a line of JSON per committed step to FOLDER/steps-POD-LOCAL_RANK.jsonl: time (monotonic),
generation, rank, world, epoch, step (of the whole training), samples (its share), per model its part of the loss, and
drawn, the random numbers that it drew at the epoch's beginning and around the step.
At the end it writes FOLDER/final-RANK.pt. In a step it waits as long as FOLDER/pace says, in seconds, or, where that is
"hold", until it says something else. Before it takes part it leaves FOLDER/ready-POD. SIGUSR1 has it say
where it is.
"""

import argparse
import faulthandler
import json
import os
import random
import signal
import time
from contextlib import nullcontext
from pathlib import Path

import models
import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

import elastic_worker as elastic


def main():
    faulthandler.register(signal.SIGUSR1)
    options = parse()
    job = elastic.init(checkpoints=options.checkpoints, in_place=False if options.fsdp else None)
    bare = models.build(options.models.split(","))
    wrapped = {name: fully_shard()(model) if options.fsdp else job.wrap(model) for name, model in bare.items()}
    for name in options.hooked.split(","):
        if name:
            wrapped[name].register_comm_hook(None, allreduce_hook)
    state = job.state(**wrapped, **parts(options, bare))
    rows = models.samples(options.length)
    pod = os.environ.get("ELASTIC_POD_NAME", "alone")
    (options.folder / f"ready-{pod}").touch()
    job.restore(state)
    with (options.folder / f"steps-{pod}-{job.local_rank}.jsonl").open("a", buffering=1) as log:
        for epoch in job.epochs(options.epochs):
            of_epoch = random.random()
            for batch in job.batches(state.data):
                before, drawn = state.step, [of_epoch, torch.rand(()).item()]
                with job.step(state) as step:
                    losses, mine = dict.fromkeys(bare, 0.0), []
                    for micro in batch.micro:
                        for _ in range(options.backwards):
                            total = 0.0
                            for name, model in wrapped.items():
                                loss = loss_of(options, model, rows, micro)
                                losses[name] += loss.item()
                                total = total + loss.double()
                            step.backward(total)
                        mine += micro.indices if micro.weight else []
                    drawn.append(random.random())
                    keep_pace(options.folder)
                    step.update(loss=sum(losses.values()), clip_norm=options.clip)
                drawn.append(torch.rand(()).item())
                if state.step > before:  # not after a step that was aborted: its batch comes again
                    write(log, job, epoch=epoch, step=state.step, samples=mine, losses=losses, drawn=drawn)
    if options.checkpoints:
        job.checkpoint(state, wait=True)
    time.sleep(options.linger if job.rank == 0 else 0)
    final = {name: {key: whole(value) for key, value in each.state_dict().items()} for name, each in bare.items()}
    torch.save(
        {"models": final, "scaler": state.scaler and state.scaler.state_dict()}, options.folder / f"final-{job.rank}.pt"
    )


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="mlp")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--length", type=int, default=480)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--micro", type=int, default=4)
    parser.add_argument("--magnify", type=float, default=1.0)
    parser.add_argument("--clip", type=float)
    parser.add_argument("--schedule", action="store_true")
    parser.add_argument("--scaler", action="store_true")
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--drop-last", action="store_true")
    parser.add_argument("--fsdp", action="store_true")
    parser.add_argument("--backwards", type=int, default=1, help="into so many parts each loss is divided")
    parser.add_argument("--hooked", default="", help="models that get a communication hook of the script's own")
    parser.add_argument("--checkpoints")
    parser.add_argument("--linger", type=float, default=0.0)
    return parser.parse_args()


def parts(options, bare):
    """The whole state except the models."""
    made = {f"optimizer_{name}": models.optimizer_of(model) for name, model in bare.items()}
    if options.schedule:
        made["scheduler"] = torch.optim.lr_scheduler.LambdaLR(next(iter(made.values())), models.factor)
    if options.scaler:
        made["scaler"] = models.scaler()
    data = elastic.Sampler(
        options.length, global_batch=options.batch, micro_batch=options.micro, seed=7, drop_last=options.drop_last
    )
    return {**made, "data": data}


def loss_of(options, model, rows, micro):
    """The argument of one of the backwards: its part of the micro-batch's loss."""
    with autocast(options):
        return models.loss_of(model, rows[micro.indices]) * micro.weight * options.magnify / options.backwards


def fully_shard():
    """FSDP2, which older versions have in another module."""
    try:
        from torch.distributed.fsdp import fully_shard as found
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard as found
    return found


def whole(value):
    """The whole of a sharded tensor."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def autocast(options):
    return torch.autocast("cpu", dtype=torch.bfloat16) if options.autocast else nullcontext()


def keep_pace(folder):
    path = folder / "pace"
    while (told := path.read_text() if path.exists() else "0") == "hold":
        time.sleep(0.02)
    time.sleep(float(told))


def write(log, job, **what):
    where = {"time": time.monotonic(), "generation": job.generation, "rank": job.rank, "world": job.world_size}
    log.write(json.dumps({**where, **what}) + "\n")


if __name__ == "__main__":
    main()
