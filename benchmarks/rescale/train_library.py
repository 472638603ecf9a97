# mypy: disable-error-code="import-not-found, no-untyped-call"
"""The training script that is measured with the library: the same model and pace as train.py, without checkpoints.

    train_library.py FOLDER [--busy]

A global batch is four micro-batches of 64, dealt to all processes. After each step a line of JSON goes to
FOLDER/steps-POD.jsonl: time (the machine's monotonic seconds), pid, rank, world, generation, step (how many batches
have counted so far), tries (how often this process began it).
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import TextIO

import torch
from torch import nn

import elastic_worker as elastic

STEPS = 10
STEP_SECONDS = 0.05
BUSY_PRODUCTS = 60
MICRO_BATCH = 64
GLOBAL_BATCH = 4 * MICRO_BATCH


def main() -> None:
    folder, busy = Path(sys.argv[1]), "--busy" in sys.argv
    torch.manual_seed(0)
    job = elastic.init()
    model = job.wrap(nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = elastic.Sampler(STEPS * GLOBAL_BATCH, global_batch=GLOBAL_BATCH, micro_batch=MICRO_BATCH)
    state = job.state(model=model, optimizer=optimizer, data=data)
    job.restore(state)
    tries = 0
    with (folder / f"steps-{os.environ['BENCH_POD']}.jsonl").open("a", buffering=1) as log:
        for _ in job.epochs(1_000_000):
            for batch in job.batches(state.data):
                before, tries = state.step, tries + 1
                with job.step(state) as step:
                    for micro in batch.micro:
                        step.backward(model(torch.randn(len(micro.indices), 256)).square().mean() * micro.weight)
                    step.update()
                    work(busy=busy)
                if state.step > before:
                    write(log, job, tries)
                    tries = 0


def work(*, busy: bool) -> None:
    if not busy:
        time.sleep(STEP_SECONDS)
        return
    product = torch.eye(256)
    for _ in range(BUSY_PRODUCTS):
        product = product @ product


def write(log: TextIO, job: elastic.Job, tries: int) -> None:
    line = {"time": time.monotonic(), "pid": os.getpid(), "step": job.step_count, "tries": tries}
    more = {"rank": job.rank, "world": job.world_size, "generation": job.generation}
    log.write(json.dumps({**line, **more}) + "\n")


if __name__ == "__main__":
    main()
