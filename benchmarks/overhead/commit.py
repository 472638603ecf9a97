# mypy: disable-error-code="import-not-found, no-untyped-call"
"""CPU time of the library alone per step: that of its loop around nothing, less that of a bare loop around nothing.

    commit.py FILE ROUNDS

One process, a model of one parameter that has no gradients, a loss that does nothing. Rounds of both loops alternate.
FILE gets the medians: {"library_us": ..., "bare_us": ...}.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import elastic_worker as elastic

STEPS, BATCH = 500, 64


class Nothing:
    """Stands for a loss."""

    def __mul__(self, weight: float) -> "Nothing":
        return self

    def backward(self) -> None:
        """Does nothing."""


class Model(nn.Module):  # type: ignore[misc]
    """One parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.parameter = nn.Parameter(torch.zeros(1))


def main() -> None:
    job = elastic.init()
    model = job.wrap(Model())
    optimizer = torch.optim.AdamW(model.parameters())
    data = elastic.Sampler(STEPS * BATCH, global_batch=BATCH, micro_batch=BATCH)
    state = job.state(model=model, optimizer=optimizer, data=data)
    job.restore(state)
    bare_optimizer = torch.optim.AdamW(Model().parameters())
    library, bare = [], []
    for _ in job.epochs(int(sys.argv[2])):
        library.append(timed(lambda: library_round(job, state)))
        bare.append(timed(lambda: bare_round(bare_optimizer)))
    told = {"library_us": statistics.median(library), "bare_us": statistics.median(bare)}
    Path(sys.argv[1]).write_text(json.dumps(told))


def library_round(job: elastic.Job, state: elastic.State) -> None:
    loss = Nothing()
    for batch in job.batches(state.data):
        with job.step(state) as step:
            for micro in batch.micro:
                step.backward(loss * micro.weight)
            step.update(loss=None)


def bare_round(optimizer: torch.optim.Optimizer) -> None:
    loss = Nothing()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def timed(work: Callable[[], None]) -> float:
    """Microseconds of this thread per step."""
    begun = time.thread_time()
    work()
    return (time.thread_time() - begun) / STEPS * 1e6


if __name__ == "__main__":
    main()
