# mypy: disable-error-code="import-not-found, no-untyped-call"
"""The model of both scripts, and their timing. They import it as a neighbour."""

import json
import os
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

WIDTH, LAYERS = 512, 3
BATCH = 64
"""Samples per rank and step."""
EPOCH_STEPS = 50
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)))


def make_samples() -> torch.Tensor:
    return torch.randn(EPOCH_STEPS * BATCH * WORLD, WIDTH)


def loss_of(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return (model(rows) - rows).square().mean()


class Pace:
    """The command line: FILE STEPS WARM_UP. Rank 0 writes the seconds of each step after WARM_UP to FILE."""

    def __init__(self) -> None:
        self._file = Path(sys.argv[1])
        self._steps, self._warm_up = int(sys.argv[2]), int(sys.argv[3])
        self._times: list[float] = []
        self._cpu = 0.0

    def is_over(self) -> bool:
        """Note a done step; returns whether it was the last one."""
        self._times.append(time.perf_counter())
        done = len(self._times)
        if done == self._warm_up:
            self._cpu = time.process_time()
        if done < self._warm_up + self._steps:
            return False
        if os.environ["RANK"] == "0":
            self._write(time.process_time() - self._cpu)
        return True

    def _write(self, cpu: float) -> None:
        steps = [after - before for before, after in pairwise(self._times[self._warm_up - 1 :])]
        fast = statistics.quantiles(steps, n=10)[0]
        told = {"step_s": statistics.median(steps), "fast_s": fast, "cpu_s": cpu / len(steps)}
        self._file.write_text(json.dumps(told))
