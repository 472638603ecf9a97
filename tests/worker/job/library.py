"""A training script of the tests that uses the library and records each commit.

    library.py FOLDER --epochs 3 --length 2000 --pause 0.02 [--checkpoint-every 10] [--evaluate] [--fail-at 35] ...

Beside what script.py writes down of each committed step: rank, world, epoch, step (of the whole training), samples (its
share).
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
from script import account, add_failures, fail_if_asked, is_over, write
from torch import nn

import elastic_worker as elastic

WIDTH = 16


def main():
    options = parse()
    torch.manual_seed(1)
    in_place = None if options.kind == "in-place" else False
    job = elastic.init(checkpoints=options.folder / "checkpoints", in_place=in_place)
    if options.kind == "fsdp":
        model = build()
        fully_shard()(model)
    else:
        model = job.wrap(build())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.9)
    data = elastic.Sampler(options.length, global_batch=options.batch, micro_batch=options.micro, seed=7)
    state = job.state(model=model, optimizer=optimizer, scheduler=scheduler, data=data)
    time.sleep(options.setup)
    job.restore(state)
    samples = torch.randn(options.length, WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    with account(options.folder) as log:
        for epoch in job.epochs(options.epochs):
            if is_over(options.folder, epoch):
                break
            for batch in job.batches(state.data):
                with job.step(state) as step:
                    fail_if_asked(options, job.rank, job.step_count)
                    total, mine = 0.0, []
                    for micro in batch.micro:
                        rows = samples[micro.indices]
                        loss = (model(rows) - rows.roll(1, 1)).square().mean() * micro.weight
                        step.backward(loss)
                        total += loss.item()
                        mine += micro.indices if micro.weight else []
                    time.sleep(options.pause)
                    step.update(loss=total)
                if step.committed:
                    where = {"generation": job.generation, "rank": job.rank, "world": job.world_size}
                    write(log, **where, epoch=epoch, step=state.step, samples=mine)
                if options.checkpoint_every and state.step % options.checkpoint_every == 0:
                    job.checkpoint(state)
            if options.evaluate:
                evaluate(options, job, model, samples, epoch)
    job.checkpoint(state, wait=True)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=100_000)
    parser.add_argument("--length", type=int, default=960)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--micro", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.02)
    parser.add_argument("--setup", type=float, default=0.0)
    parser.add_argument("--kind", default="in-place", choices=["in-place", "restart", "fsdp"])
    parser.add_argument("--checkpoint-every", type=int, default=0)
    parser.add_argument("--evaluate", action="store_true")
    add_failures(parser)
    return parser.parse_args()


def fully_shard():
    """FSDP2, which older versions have in another module."""
    try:
        from torch.distributed.fsdp import fully_shard as found
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard as found
    return found


def build():
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, WIDTH)).double()


def evaluate(options, job, model, samples, epoch):
    evaluation = job.eval_batches(len(samples), batch_size=16)
    model.eval()
    with torch.no_grad():
        for batch in evaluation:
            rows = samples[batch.indices]
            time.sleep(options.pause)
            evaluation.add(count=len(rows), error=(model(rows) - rows).square().sum() if len(rows) else 0.0)
    model.train()
    with (options.folder / f"evaluated-{os.environ.get('ELASTIC_POD_NAME', 'alone')}.jsonl").open("a") as log:
        log.write(json.dumps({"epoch": epoch, "rank": job.rank, **evaluation.result}) + "\n")


if __name__ == "__main__":
    main()
