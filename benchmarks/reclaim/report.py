"""The figures beside the goals, for readers, and as one line of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.live.quantile import MILLISECONDS, quantile
from benchmarks.reclaim.owner import Owner
from benchmarks.reclaim.stages import Request, Stage, ratio

SPEED = "p50 < 0.3 s, max < 1.5 s"
Timed = Sequence[tuple[float, float]]
"""Seconds and number of observations, reading by reading."""


@dataclass(frozen=True, slots=True)
class Figures:
    """All measurements.

    `by_hand` is the gang's Job again, for which a plain client made room. `resident_megabytes` is the highest at any
    look, `highest_megabytes` the highest so far.
    """

    large: Sequence[Request]
    small: Mapping[int, Sequence[Request]]
    gang: Request
    by_hand: Request
    allocations: Timed
    unchanged: Timed
    resident_megabytes: float
    highest_megabytes: float
    load: float

    def kinds(self) -> dict[str, Sequence[Request]]:
        """The requests by their names in the table."""
        small = {
            f"four nodes: {'1 pod of 1 GPU' if pods == 1 else f'{pods} pods of 1 GPU at once'}": made
            for pods, made in self.small.items()
        }
        gang = {f"a Job of {self.gang.pods} pods of {self.gang.gpus // self.gang.pods} GPUs": [self.gang]}
        return {"1 pod of 1 GPU": self.large} | small | gang

    @property
    def gang_over_plain(self) -> float:
        """The gang's time over its time when a plain client deletes the pods in its way."""
        taken, by_hand = self.gang.seconds, self.by_hand.seconds
        return float("inf") if taken is None or by_hand is None else taken / by_hand

    def summary(self) -> dict[str, float | None]:
        """The figures of the last line. The ratio is that of the kind of request furthest from 1."""
        ratios = [ratio(made) for made in self.kinds().values()]
        return {
            "reclaim_p50_s": _rounded(_quantile(self.large, 0.5)),
            "reclaim_max_s": _rounded(_quantile(self.large, 1)),
            "small_p50_s": _rounded(_quantile([each for made in self.small.values() for each in made], 0.5)),
            "evicted_ratio": round(max((abs(found - 1), found) for found in ratios)[1], 3),
            "evicted_besides": self.gang.evicted_besides,
            "gang_s": _rounded(_quantile([self.gang], 1)),
            "gang_over_plain": _rounded(self.gang_over_plain),
            "allocate_p50_ms": round(_median_ms(self.allocations), 2),
            "idle_pass_p50_ms": round(_median_ms(self.unchanged), 2),
            "rss_mb": round(self.resident_megabytes, 1),
        }


def show(figures: Figures, owner: Owner | None, console: Console) -> None:
    """Print tables (requests, the operator, parts of the time, the gang, the owner), then the line of JSON."""
    console.print(_requests(figures), _parts(figures), _gang(figures.gang))
    if owner is not None:
        console.print(owner.table())
    print(json.dumps(figures.summary() | (owner.summary() if owner else {})), flush=True)


def _requests(figures: Figures) -> Table:
    table = _table(f"From created to the last pod bound (load average of the machine: {figures.load:.1f})")
    for column in ("what", "p50", "max", "number", "evicted / requested GPUs", "goal"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for what, made in figures.kinds().items():
        evicted = f"{sum(each.evicted for each in made)} / {sum(each.gpus for each in made)}"
        goal = "1.0" if made == [figures.gang] else f"{SPEED}, 1.0"
        shown = [_seconds(_quantile(made, share)) for share in (0.5, 1)]
        table.add_row(what, *shown, str(len(made)), evicted, goal)
    besides = "meanwhile, so that jobs that lost all their pods to it have their minimum again"
    table.add_row(besides, "", "", "", str(figures.gang.evicted_besides), "")
    by_hand = _seconds(_quantile([figures.by_hand], 1))
    what = f"the same Job, once a plain client has deleted {figures.by_hand.evicted} pods"
    table.add_row(what, by_hand, by_hand, "1", "", f"gang / this: {figures.gang_over_plain:.2f} (below 2)")
    table.add_section()
    _add_timed(table, "allocation during the single tries (a try's mean)", figures.allocations)
    _add_timed(table, "pass in which nothing changes", figures.unchanged)
    highest = f"{figures.highest_megabytes:.0f} MB"
    table.add_row(
        "operator's memory (max: its peak)", f"{figures.resident_megabytes:.0f} MB", highest, "", "", "< 250 MB"
    )
    return table


def _add_timed(table: Table, what: str, timed: Timed) -> None:
    worst = max(seconds / count for seconds, count in timed) * MILLISECONDS
    number = f"{sum(count for _, count in timed):.0f}"
    table.add_row(what, f"{_median_ms(timed):.1f} ms", f"{worst:.1f} ms", number, "", "")


def _parts(figures: Figures) -> Table:
    """The parts of the time of one-pod requests: medians of the steps, each after the previous one."""
    kinds = {name: made for name, made in figures.kinds().items() if all(each.pods == 1 for each in made)}
    table = _table("Where the time goes: each step after the one before it, median (and how often it was seen)")
    table.add_column("step")
    for name in kinds:
        table.add_column(name, justify="right")
    for stage in Stage:
        taken = [[each.parts()[stage] for each in made if stage in each.parts()] for made in kinds.values()]
        table.add_row(
            stage, *(f"{median(times) * MILLISECONDS:.1f} ms ({len(times)})" if times else "-" for times in taken)
        )
    return table


def _gang(gang: Request) -> Table:
    table = _table("The Job's pods and their victims: seconds after the Job was created")
    for column in ("step", "number", "first", "half", "last"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for stage, times in gang.stages.items():
        table.add_row(stage, str(len(times)), *(f"{quantile(times, share):.2f} s" for share in (0, 0.5, 1)))
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left")


def _quantile(made: Sequence[Request], share: float) -> float:
    """Failed requests count as infinitely long."""
    return quantile([float("inf") if each.seconds is None else each.seconds for each in made], share)


def _seconds(value: float) -> str:
    return "never" if value == float("inf") else f"{value:.3f} s"


def _rounded(value: float) -> float | None:
    """The value for JSON, which has no infinity."""
    return None if value == float("inf") else round(value, 4)


def _median_ms(timed: Timed) -> float:
    return median(seconds / count for seconds, count in timed) * MILLISECONDS
