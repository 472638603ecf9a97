"""What the trainings come to: pace, speed-up, efficiency, and what published runs lead one to expect of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.torch.hardware import Hardware
from benchmarks.torch.runs import Result
from benchmarks.torch.ways import Way

PUBLISHED = {"single": 1786.0, "data_parallel": 984.0, "ddp": 239.0, "amp": 230.0}
"""Seconds of an epoch of ResNet-50 on ImageNet, on one and on eight A100, from the slowest to the fastest."""


@dataclass(frozen=True, slots=True)
class Row:
    """A way with so many devices: its results, one for each run, or the reason why there is none."""

    way: Way
    size: int
    results: Sequence[Result] = ()
    reason: str = ""

    @property
    def name(self) -> str:
        """For programs."""
        return f"{self.way.name}_{self.size}"

    @property
    def epoch_seconds(self) -> float:
        """Of the fastest epoch of all runs: whatever else the machine does can only slow an epoch down."""
        return min(seconds for result in self.results for seconds in result.seconds)

    @property
    def images_per_second(self) -> float:
        """At that pace."""
        return self.results[0].images / self.epoch_seconds

    @property
    def cpu_seconds(self) -> float:
        """Of an epoch, all processes together: the median over all runs. Other work hardly changes it."""
        return median(result.cpu_seconds for result in self.results)

    @property
    def busy(self) -> tuple[float, ...]:
        """Of each device, the median over all runs."""
        return tuple(median(shares) for shares in zip(*(result.busy for result in self.results), strict=True))

    @property
    def peak_bytes(self) -> int:
        """The largest one."""
        return max(result.peak_bytes for result in self.results)

    @property
    def accuracy(self) -> float:
        """The median over all runs."""
        return median(result.accuracy for result in self.results)


def one_device(rows: Sequence[Row]) -> Row | None:
    """What the others are compared with; None where it was not measured."""
    return next((row for row in rows if row.way.name == "single" and row.results), None)


def ratios(rows: Sequence[Row]) -> dict[str, float]:
    """Of each row to one device: speed-up, efficiency (the part of it that each device has), CPU time of an epoch."""
    one, told = one_device(rows), dict[str, float]()
    for row in rows if one else ():
        if one and row.results:
            speed_up = row.images_per_second / one.images_per_second
            told[f"{row.name}_speed_up"] = speed_up
            told[f"{row.name}_efficiency"] = speed_up / row.size
            told[f"{row.name}_cpu"] = row.cpu_seconds / one.cpu_seconds
    return {name: round(value, 3) for name, value in told.items()}


@dataclass(frozen=True, slots=True)
class Step:
    """`faster` over `slower`: how many times in published runs, and here with `size` devices, if it can be shown."""

    slower: str
    faster: str
    published: float
    here: float | None
    size: int
    remark: str


def steps(rows: Sequence[Row], hardware: Hardware) -> Iterator[Step]:
    """From each place of the published order to the next that is known here, as far as one process per device goes."""
    size = max((row.size for row in rows if row.results and row.size <= hardware.devices), default=1)
    found = {row.way.name: row for row in rows if row.size == (1 if row.way.name == "single" else size)}
    names = list(PUBLISHED)
    for slower, faster in [("single", "data_parallel"), ("data_parallel", "ddp"), ("single", "ddp"), ("ddp", "amp")]:
        assert names.index(slower) < names.index(faster)
        both = [found.get(name) for name in (slower, faster)]
        remarks = [row.reason if row else "not measured" for row in both if row is None or not row.results]
        before, after = both
        is_known = before is not None and after is not None and not remarks
        here = after.images_per_second / before.images_per_second if is_known and before and after else None
        published = PUBLISHED[slower] / PUBLISHED[faster]
        remark = remarks[0] if remarks else _remark(faster, size, hardware)
        yield Step(slower, faster, published, here, size, remark)


def cannot_show(rows: Sequence[Row], hardware: Hardware) -> list[str]:
    """Where the hardware, not the way, decides on a figure: a sentence each."""
    told = []
    if not hardware.gpus:
        told.append("There is no GPU: a small network learns digits, and one core counts as a device.")
        if not hardware.has_bf16:
            told.append("The CPU has no bf16 instructions: mixed precision can only be slower.")
    crowded = sorted({row.size for row in rows if row.results and row.size > hardware.devices})
    told += [
        f"{size} processes share {hardware.cores} cores: together they cannot be faster than {hardware.cores}."
        for size in crowded
    ]
    if hardware.devices < 8:
        told.append(f"There are {hardware.devices} devices, not 8: no speed-up above {hardware.devices} can show.")
    if hardware.load > 0.5:
        told.append(
            f"The machine was not at rest before the start (load {hardware.load:.1f} on {hardware.cores} cores): look "
            "at CPU time, which other work hardly changes, before seconds and speed-ups."
        )
    return told


def _remark(faster: str, size: int, hardware: Hardware) -> str:
    if size < 2:
        return "one device only: nothing to be faster with"
    if faster == "amp" and not hardware.gpus:
        return "bf16 on a CPU, not fp16 on tensor cores"
    return ""
