"""A training script that uses the library, as the tests need it: it writes down each commit.

    library.py FOLDER --epochs 3 --length 2000 --pause 0.02 [--checkpoint-every 10] [--evaluate] [--fail-at 35] ...

Each process appends a line of JSON per committed step to FOLDER/steps-POD-LOCAL_RANK.jsonl: time (monotonic), master,
generation, rank, world, epoch, step (of the whole training), samples (its share), loss, pid, pod.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

import elastic_worker as elastic

WIDTH = 16


def main():
    options = parse()
    torch.manual_seed(options.seed)
    in_place = None if options.kind == "in-place" else False
    job = elastic.init(checkpoints=options.folder / "checkpoints" if options.save else None, in_place=in_place)
    if options.kind == "fsdp":
        model = build(options)
        fully_shard()(model)
    else:
        model = job.wrap(build(options))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.9)
    data = elastic.Sampler(options.length, global_batch=options.batch, micro_batch=options.micro, seed=7)
    state = job.state(model=model, optimizer=optimizer, scheduler=scheduler, data=data)
    time.sleep(options.setup)
    job.restore(state)
    samples = torch.randn(options.length, WIDTH, generator=torch.Generator().manual_seed(3), dtype=options.dtype)
    pod = os.environ.get("ELASTIC_POD_NAME", "alone")
    name = f"steps-{pod}-{os.environ.get('LOCAL_RANK', '0')}.jsonl"
    with (options.folder / name).open("a", buffering=1) as log:
        for epoch in job.epochs(options.epochs):
            if is_over(options.folder, epoch):
                break
            for batch in job.batches(state.data):
                with job.step(state) as step:
                    fail_if_asked(options, job)
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
                    write(log, job, epoch, state.step, mine, total)
                if options.checkpoint_every and state.step % options.checkpoint_every == 0:
                    job.checkpoint(state)
            if options.evaluate:
                evaluate(options, job, model, samples, epoch)
    if options.save:
        job.checkpoint(state, wait=True)
    if options.kind != "fsdp":
        torch.save(model.module.state_dict(), options.folder / f"final-{job.rank}.pt")
    (options.folder / f"finished-{job.rank}").touch()


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
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=int, default=1)
    parser.add_argument("--checkpoint-every", type=int, default=0)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--dtype", type=lambda name: getattr(torch, name), default=torch.float64)
    parser.add_argument("--fail-at", type=int, default=-1)
    parser.add_argument("--fail-rank", type=int, default=0)
    parser.add_argument("--fail-how", default="raise")
    parser.add_argument("--fail-once", action="store_true")
    return parser.parse_args()


def fully_shard():
    """FSDP2; it was elsewhere in older versions."""
    try:
        from torch.distributed.fsdp import fully_shard as found
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard as found
    return found


def build(options):
    layers = [nn.Linear(WIDTH, 32), nn.Tanh(), nn.Dropout(options.dropout), nn.Linear(32, WIDTH)]
    return nn.Sequential(*layers).to(options.dtype)


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


def is_over(folder, epoch):
    """Whether the test has written down that there are no more epochs than those before this one."""
    path = folder / "epochs"
    return path.exists() and epoch >= int(path.read_text())


def fail_if_asked(options, job):
    """Fail in the way, at the step and on the rank that the test wants."""
    marker = options.folder / "failed"
    if job.step_count != options.fail_at or job.rank != options.fail_rank or (options.fail_once and marker.exists()):
        return
    marker.touch()
    if options.fail_how == "raise":
        raise ValueError(f"the loss is NaN in step {job.step_count}")
    if options.fail_how == "exit":
        sys.exit(9)
    if options.fail_how == "hang":
        print("it hangs now", flush=True)
        time.sleep(10_000)
    os.kill(os.getpid(), signal.SIGKILL)


def write(log, job, epoch, step, samples, loss):
    line = {
        "time": time.monotonic(),
        "master": int(os.environ.get("ELASTIC_MASTER_EPOCH", "0")),
        "generation": job.generation,
        "pid": os.getpid(),
        "pod": os.environ.get("ELASTIC_POD_UID", ""),
        "rank": job.rank,
        "world": job.world_size,
        "epoch": epoch,
        "step": step,
        "samples": samples,
        "loss": loss,
    }
    log.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
