"""Makes one training in one way, and reads what its processes have measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.live.errors import BenchError
from benchmarks.rescale.pods import Pod
from benchmarks.torch import usage, ways
from benchmarks.torch.hardware import Hardware
from benchmarks.torch.ways import Way

LIMIT_SECONDS = 1800.0
WARM_UP = 1
"""So many epochs are not measured: in the first one, workers start and GPUs choose their algorithms."""


@dataclass(frozen=True, slots=True)
class Result:
    """Of one training. `busy` has the share of time in which each device, or on a CPU each process, computed.

    `seconds` are those of each measured epoch, of `images` images; `cpu_seconds` what all processes computed in one,
    the DataLoader's own left out. `counts`: by each way to evaluate, the sums over the
    test images (right answers, images, loss). `peak_bytes` is that of the device with the largest.
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
    """With so many devices, files of its own going to `folder`. Raises BenchError with the end of what it has said."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("journal-*.json"):
        old.unlink()
    checkpoint = folder / ("checkpoints" if way.name == "library" else "checkpoint.pt")
    options = [*arguments, f"--journal={folder}", f"--checkpoint={checkpoint}"]
    command, environ = ways.command_of(way, size, options), ways.environ_of(way, size, folder)
    told = folder / "usage.csv"
    with usage.watched(told) if hardware.gpus else nullcontext():
        pod = Pod(way.name, command, environ=environ, log=folder / "log.txt", first_pid=100)
        try:
            code = pod.wait(LIMIT_SECONDS)
        finally:
            pod.kill()
    journals = [json.loads(path.read_text()) for path in sorted(folder.glob("journal-*.json"))]
    if code or not journals:
        how = f"did not end within {LIMIT_SECONDS:.0f} s" if code is None else f"ended with {code}"
        raise BenchError(f"{way.title} with {size} {how}:\n{pod.said()[-3000:]}")
    return result_of(journals, told.read_text() if hardware.gpus else "")


def result_of(journals: Sequence[Mapping[str, Any]], told_usage: str = "") -> Result:
    """What the processes have measured, the first one being rank 0; `told_usage` as usage.busy reads it."""
    first = journals[0]
    measured = [journal["epochs"][WARM_UP:] or journal["epochs"] for journal in journals]
    epochs = measured[0]
    began, ended = epochs[0]["began"], epochs[-1]["ended"]
    used = {device for journal in journals for device in journal["peak_bytes"]}
    on_gpus = usage.busy(told_usage, began=began, ended=ended)
    shares = [share for index, share in on_gpus.items() if f"cuda:{index}" in used]
    return Result(
        seconds=tuple(epoch["ended"] - epoch["began"] for epoch in epochs),
        images=epochs[0]["images"],
        cpu_seconds=sum(epoch["cpu_seconds"] for each in measured for epoch in each) / len(epochs),
        busy=tuple(shares or map(_busy, measured)),
        peak_bytes=max(peak for journal in journals for peak in journal["peak_bytes"].values()),
        counts={name: tuple(sums) for name, sums in first["counts"].items()},
        parameters=first["parameters"],
    )


def _busy(epochs: Sequence[Mapping[str, float]]) -> float:
    seconds = sum(epoch["ended"] - epoch["began"] for epoch in epochs)
    return sum(epoch["cpu_seconds"] for epoch in epochs) / seconds
