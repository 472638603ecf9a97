"""Figures of the trainings: pace, speed-up and efficiency, beside those of a published run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.torch.hardware import Hardware
from benchmarks.torch.runs import Result
from benchmarks.torch.ways import BY_HAND, WAYS, Way

LOAD = 0.5
"""The load, averaged over a minute, above which a machine is not at rest."""


@dataclass(frozen=True, slots=True)
class Published:
    """One training of a published run: seconds of an epoch, and the share of time in which the GPUs computed."""

    way: str
    devices: str
    seconds: float
    busy: float | None = None


PUBLISHED = (
    Published("single", "1 GPU", 1786.0, 0.365),
    Published("data_parallel", "8 GPUs", 984.0),
    Published("ddp", "8 GPUs", 239.0, 0.958),
    Published("amp", "8 GPUs, apex", 230.0),
    Published("ddp", "4 nodes, 400 images a GPU", 52.0),
)
"""ResNet-50 on ImageNet, on A100, from the slowest to the fastest."""
PUBLISHED_DEVICES = 8
PAIRS = (("single", "data_parallel"), ("data_parallel", "ddp"), ("single", "ddp"), ("ddp", "amp"))
"""Slower and faster ones of them, on one node."""


@dataclass(frozen=True, slots=True)
class Row:
    """A way with one number of devices: its results, one for each run, or the reason why there is none."""

    way: Way
    size: int
    results: Sequence[Result] = ()
    reason: str = ""

    @property
    def name(self) -> str:
        """The name for programs."""
        return f"{self.way.name}_{self.size}"

    @property
    def epoch_seconds(self) -> float:
        """The seconds of the fastest epoch of all runs, because other work on the machine can only slow epochs down."""
        return min(seconds for result in self.results for seconds in result.seconds)

    @property
    def images_per_second(self) -> float:
        """The images per second at that pace."""
        return self.results[0].images / self.epoch_seconds

    @property
    def cpu_seconds(self) -> float:
        """The CPU seconds of an epoch of all processes: the median over all runs. Other work hardly changes it."""
        return median(result.cpu_seconds for result in self.results)

    @property
    def busy(self) -> tuple[float, ...]:
        """The busy share of each device: the median over all runs."""
        return tuple(median(shares) for shares in zip(*(result.busy for result in self.results), strict=True))

    @property
    def peak_bytes(self) -> int:
        """The largest peak of all runs."""
        return max(result.peak_bytes for result in self.results)

    @property
    def accuracy(self) -> float:
        """The median accuracy over all runs."""
        return median(result.accuracy for result in self.results)


def one_device(rows: Sequence[Row]) -> Row | None:
    """The row that others are compared with; None if it was not measured."""
    return next((row for row in rows if row.way.form == "single" and row.results), None)


def ratios(rows: Sequence[Row]) -> dict[str, float]:
    """Compare each row with one device: speed-up, efficiency (speed-up per device), CPU time of an epoch.

    Compare also the pace of each row in a mode of the operator with the same form by hand, on as many devices.
    """
    one, told = one_device(rows), dict[str, float]()
    measured = {row.name: row for row in rows if row.results}
    for row in measured.values():
        if one:
            speed_up = row.images_per_second / one.images_per_second
            told[f"{row.name}_speed_up"] = speed_up
            told[f"{row.name}_efficiency"] = speed_up / row.size
            told[f"{row.name}_cpu"] = row.cpu_seconds / one.cpu_seconds
        # The library's form is DDP, with the library's steps.
        alike = measured.get(f"{'ddp' if row.way.is_library else row.way.form}_{row.size}")
        if alike and row.way.started != BY_HAND:
            told[f"{row.name}_over_by_hand"] = row.images_per_second / alike.images_per_second
    return {name: round(value, 3) for name, value in told.items()}


@dataclass(frozen=True, slots=True)
class Step:
    """`faster` over `slower`: how many times in the published run, and here with `size` devices, if it can be shown."""

    slower: Way
    faster: Way
    published: float
    here: float | None
    size: int
    remark: str


def steps(rows: Sequence[Row], hardware: Hardware) -> Iterator[Step]:
    """The published order, pair by pair, with as many processes as have a device each here."""
    size = max((row.size for row in rows if row.results and row.size <= hardware.devices), default=1)
    seconds = {each.way: each.seconds for each in reversed(PUBLISHED)}
    for slower, faster in PAIRS:
        before, after = (_found(rows, name, 1 if name == "single" else size) for name in (slower, faster))
        reason = next((row.reason or "not measured" for row in (before, after) if not row.results), "")
        yield Step(
            WAYS[slower],
            WAYS[faster],
            published=seconds[slower] / seconds[faster],
            here=None if reason else after.images_per_second / before.images_per_second,
            size=size,
            remark=reason or _remark(faster, size, hardware),
        )


def cannot_show(rows: Sequence[Row], hardware: Hardware) -> list[str]:
    """A sentence for each figure that the hardware decides, not the way."""
    told = []
    if not hardware.gpus:
        told.append(
            "There is no GPU: a small network learns digits, one core counts as a device, and processes talk by gloo. "
            "How fast NCCL is, and whether GPUs wait for data, is not seen."
        )
        told.append(
            "Mixed precision is bf16 here, for which the CPU "
            + ("has instructions; what tensor cores do is not seen." if hardware.has_bf16 else "has no instructions.")
        )
    crowded = sorted({row.size for row in rows if row.results and row.size > hardware.devices})
    told += [
        f"{size} processes share {hardware.cores} cores: they have more to hand around, and nothing to gain."
        for size in crowded
    ]
    if hardware.devices < PUBLISHED_DEVICES:
        told.append(
            f"There are {hardware.devices} devices, not {PUBLISHED_DEVICES}: no speed-up above {hardware.devices} can "
            "show, and no second node."
        )
    return told


def unrest(hardware: Hardware) -> str:
    """A warning to read before the figures; "" if the machine was at rest."""
    if hardware.load <= LOAD:
        return ""
    return (
        f"The machine was not at rest before the start: load {hardware.load:.1f} on {hardware.cores} cores. Images per "
        "second, speed-ups and efficiencies show what else it did; only CPU time, memory and accuracy mean something."
    )


def _found(rows: Sequence[Row], name: str, size: int) -> Row:
    return next((row for row in rows if row.way.name == name and row.size == size), Row(WAYS[name], size))


def _remark(faster: str, size: int, hardware: Hardware) -> str:
    if size == 1:
        return "one device only: nothing to be faster with"
    if faster == "amp" and not hardware.gpus:
        return "bf16 on a CPU, not fp16 on tensor cores"
    return ""
