"""`python -m benchmarks.rescale`: each change of each system, several times, on this machine without Kubernetes."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.live.errors import BenchError
from benchmarks.rescale import report
from benchmarks.rescale.changes import CHANGES, Options, Result, measure
from benchmarks.rescale.report import Picture
from benchmarks.rescale.steps import EPOCH_STEPS, Cost
from benchmarks.rescale.systems import SYSTEMS, import_seconds
from devcluster import command_line
from devcluster.progress import Progress

STEADY_STEPS = 60
"""Before a change, so that the pace of before is known."""
BUSY_SYSTEMS = ("tuned", "plain", "library")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Table = defaultdict[str, dict[str, list[Cost | None]]]


@app.command()
def rescale(
    runs: Annotated[int, typer.Option(help="Of each change and system.", min=1)] = 5,
    systems: Annotated[str, typer.Option(help="Which, separated by commas.")] = ",".join(SYSTEMS),
    changes: Annotated[str, typer.Option(help="Which, separated by commas.")] = ",".join(CHANGES),
    window: Annotated[float, typer.Option(help="Seconds after a decision in which missing steps are counted.")] = 30.0,
    busy: Annotated[bool, typer.Option(help="Measure once more with steps that compute all the time.")] = True,
    plot: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("rescale.svg"),
) -> None:
    """How long training stands still when its size changes, and what is lost: torchrun, Elastic mode, the library."""
    chosen = _chosen(systems, SYSTEMS, "system"), _chosen(changes, CHANGES, "change")
    console, load = Console(width=150, highlight=False), os.getloadavg()[0]
    costs: Table = defaultdict(dict)
    busy_costs: Table = defaultdict(dict)
    pictures: list[Picture] = []
    with tempfile.TemporaryDirectory(prefix="rescale-") as folder:
        bench = _Bench(Path(folder), *chosen, window=window)
        for system, change, result in bench.run(runs):
            costs[system].setdefault(change, []).append(result.cost)
            if len(costs[system][change]) == 1:
                pictures.append(Picture(system, change, result.decided, result.steps))
        if busy:
            for system, change, result in bench.run(1, busy=True, only=BUSY_SYSTEMS):
                busy_costs[system].setdefault(change, []).append(result.cost)
    report.show(costs, console, kind="steps of 50 ms, mostly asleep")
    if busy_costs:
        report.show(busy_costs, console, kind="steps that compute all the time")
    plot.write_text(report.svg_of(pictures))
    console.print(f"the steps of one run each: {plot}")
    compared = import_seconds() if {"tuned", "library"} <= set(costs) else None
    print(report.line(costs, busy_costs, load=load, import_seconds=compared), flush=True)


class _Bench:
    def __init__(self, folder: Path, systems: list[str], changes: list[str], *, window: float) -> None:
        self._folder, self._systems, self._changes, self._window = folder, systems, changes, window
        self._progress = Progress()
        self._made = 0

    def run(
        self, runs: int, *, busy: bool = False, only: tuple[str, ...] = tuple(SYSTEMS)
    ) -> list[tuple[str, str, Result]]:
        """All of it, run by run, so that whatever else the machine does meets all systems alike."""
        return [
            (system, change, self._one(system, change, number + 1, busy=busy))
            for number in range(runs)
            for system in self._systems
            for change in self._changes
            if system in only
        ]

    def _one(self, system: str, change: str, number: int, *, busy: bool) -> Result:
        self._made += 1
        # Each run's change comes at another place in an epoch.
        steps = STEADY_STEPS + number * EPOCH_STEPS * 7 // 10 % EPOCH_STEPS
        options = Options(self._folder / f"run-{self._made}", steps=steps, window=self._window, busy=busy)
        with self._progress.step(f"{system}: {change}, run {number}{' computing' if busy else ''}"):
            result = measure(SYSTEMS[system], change, options)
        cost = result.cost
        told = f"pause {cost.pause:.3f} s, {cost.loss:.0f} steps not done, {cost.lost} again" if cost else "never"
        self._progress.say(f"{system}: {change}: {told}")
        if cost is None and SYSTEMS[system].is_elastic:
            self._progress.say(result.logs)
        return result


def _chosen(names: str, known: Collection[str], what: str) -> list[str]:
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        if name not in known:
            raise BenchError(f"there is no {what} {name!r}; there are {', '.join(known)}")
    return chosen


if __name__ == "__main__":
    command_line.run(app, program="bench")
