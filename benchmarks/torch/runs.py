"""Runs one training in one way, and reads the measurements of its processes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.live.errors import BenchError
from benchmarks.local.pods import Pod
from benchmarks.torch import usage, ways
from benchmarks.torch.hardware import Hardware
from benchmarks.torch.ways import Way

LIMIT_SECONDS = 1800.0
LOOK_SECONDS = 0.1
LAST_WORDS = 3000
WARM_UP = 1
"""The number of epochs that are not measured: in the first one, workers start and GPUs choose their algorithms."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one training. `busy` has the share of time in which each device (a process on a CPU) computed.

    `seconds` are those of each measured epoch, of `images` images; `cpu_seconds` is the CPU time of all processes in
    one epoch, without the DataLoader's. `counts` has the sums over the test images (right answers, images, loss), by
    the way to evaluate. `peak_bytes` is the largest peak of all devices.
    """

    seconds: tuple[float, ...]
    images: int
    cpu_seconds: float
    busy: tuple[float, ...]
    peak_bytes: int
    counts: Mapping[str, tuple[float, float, float]]
    parameters: int

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        right, images, _ = self.counts["one device"]
        return right / images


def train(way: Way, size: int, arguments: Sequence[str], *, folder: Path, hardware: Hardware) -> Result:
    """Train with that many devices, with its own files in `folder`. Raises BenchError with the end of its output."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("journal-*.json"):
        old.unlink()
    options = [*arguments, f"--journal={folder}", f"--checkpoint={ways.checkpoint_of(way, folder)}"]
    started = ways.starts(way, size, options, folder=folder, hardware=hardware)
    told = folder / "usage.csv"
    with ExitStack() as stack:
        if hardware.gpus:
            stack.enter_context(usage.watched(told))
        pods = []
        for start in started:
            log = folder / f"log-{start.name}.txt"
            pods.append(Pod(start.name, start.command, environ=start.environ, log=log))
            stack.callback(pods[-1].kill)
        failed = _failure(pods)
        if failed:
            said = "\n".join(f"--- {pod.name}\n{pod.said()[-LAST_WORDS:]}" for pod in pods)
            raise BenchError(f"{way.title}, {way.started}, with {size} {failed}:\n{said}")
    journals = [json.loads(path.read_text()) for path in sorted(folder.glob("journal-*.json"))]
    processes = 1 if way.in_one_process else size
    if len(journals) != processes:
        raise BenchError(f"{way.title}, {way.started}: {len(journals)} processes have trained, not {processes}")
    on_gpus = told.read_text() if hardware.gpus else ""
    return result_of(journals, on_gpus, gpus=[gpu.uuid for gpu in hardware.gpus[:size]])


def _failure(pods: Sequence[Pod]) -> str:
    """The error of the first failed process; "" once all have ended well."""
    until = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < until:
        codes = [pod.code() for pod in pods]
        if any(codes):
            return f"ended with {next(filter(None, codes))}"
        if None not in codes:
            return ""
        time.sleep(LOOK_SECONDS)
    return f"did not end within {LIMIT_SECONDS:.0f} s"


def result_of(journals: Sequence[Mapping[str, Any]], told_usage: str = "", *, gpus: Sequence[str] = ()) -> Result:
    """The measurements of the processes, rank 0 first; `told_usage` is in the form that usage.busy reads."""
    first = journals[0]
    measured = [journal["epochs"][WARM_UP:] or journal["epochs"] for journal in journals]
    epochs = measured[0]
    shares = usage.busy(told_usage, began=epochs[0]["began"], ended=epochs[-1]["ended"])
    on_gpus = [shares[uuid] for uuid in gpus if uuid in shares]
    return Result(
        seconds=tuple(epoch["ended"] - epoch["began"] for epoch in epochs),
        images=epochs[0]["images"],
        cpu_seconds=sum(epoch["cpu_seconds"] for each in measured for epoch in each) / len(epochs),
        busy=tuple(on_gpus) if gpus else tuple(map(_busy, measured)),
        peak_bytes=max(peak for journal in journals for peak in journal["peak_bytes"]),
        counts={name: tuple(sums) for name, sums in first["counts"].items()},
        parameters=first["parameters"],
    )


def _busy(epochs: Sequence[Mapping[str, float]]) -> float:
    seconds = sum(epoch["ended"] - epoch["began"] for epoch in epochs)
    return sum(epoch["cpu_seconds"] for epoch in epochs) / seconds
