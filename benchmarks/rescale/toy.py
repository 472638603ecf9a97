# mypy: disable-error-code="import-not-found, misc"
"""The model of both scripts, their pace, and the record of their steps. They import it as a neighbour.

    SCRIPT FOLDER [--busy] [--megabytes N] [--save-every EPOCHS] [--step-seconds S]

A step is a small matrix product, its gradients averaged over all processes, and a sleep of S seconds, 0.05 by default;
with --busy it computes for about 50 ms instead. The model has N more megabytes that are not trained, as in fine-tuning:
they are saved, loaded and handed over like the rest, but do not make a step longer. After each step a line of JSON is
written to FOLDER/steps-POD.jsonl: time (the machine's monotonic seconds), process (its start, since pids repeat in the
next container), and the script's data on the step.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
from torch import nn

STEPS = 10
"""The steps of an epoch."""
STEP_SECONDS = 0.05
BUSY_PRODUCTS = 60
WIDTH = 256
LAYER_MEGABYTES = 10


class Model(nn.Module):
    def __init__(self, megabytes: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trained = nn.Linear(WIDTH, WIDTH)
        layers = [torch.ones(LAYER_MEGABYTES * 10**6 // 4) for _ in range(megabytes // LAYER_MEGABYTES)]
        self.frozen = nn.ParameterList(nn.Parameter(layer, requires_grad=False) for layer in layers)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        trained: torch.Tensor = self.trained(rows)
        return trained


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.SGD(trained, lr=0.01, momentum=0.9)


def options(*, save_every: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--megabytes", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=save_every, help="epochs, the first included; 0: never")
    parser.add_argument("--step-seconds", type=float, default=STEP_SECONDS)
    return parser.parse_args()


def work(options: argparse.Namespace) -> None:
    if not options.busy:
        time.sleep(options.step_seconds)
        return
    product = torch.eye(WIDTH)
    for _ in range(BUSY_PRODUCTS):
        product = product @ product


class Steps:
    def __init__(self, folder: Path) -> None:
        self._process = time.monotonic_ns()
        self._file = (folder / f"steps-{os.environ['BENCH_POD']}.jsonl").open("a", buffering=1)

    def write(self, **more: int) -> None:
        self._file.write(json.dumps({"time": time.monotonic(), "process": self._process, **more}) + "\n")
