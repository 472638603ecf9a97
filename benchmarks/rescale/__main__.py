"""`python -m benchmarks.rescale`: each change of each system, several times, on this machine without Kubernetes; and
the loss of a master on a real cluster, which is made for this and taken down."""

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
from benchmarks.rescale import lost_master, report
from benchmarks.rescale.changes import CHANGES, Options, measure
from benchmarks.rescale.loads import SMALL, Load, loads
from benchmarks.rescale.steps import EPOCH_STEPS, Cost
from benchmarks.rescale.systems import SYSTEMS, import_seconds
from devcluster import command_line
from devcluster.progress import Progress

STEADY_STEPS = 60
"""The steps before a change, by which the pace before it is known."""
COMPARED = ("tuned", "plain", "library")
"""The systems that are also measured with other loads, and on the cluster."""
CLUSTER = "bench"
ALL_CHANGES = (*CHANGES, lost_master.NAME)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Table = defaultdict[str, dict[str, list[Cost | None]]]


@app.command()
def rescale(
    runs: Annotated[int, typer.Option(help="Runs of each change; one with other loads.", min=1)] = 5,
    systems: Annotated[str, typer.Option(help="Which, separated by commas.")] = ",".join(SYSTEMS),
    changes: Annotated[str, typer.Option(help="Which, separated by commas.")] = ",".join(ALL_CHANGES),
    load: Annotated[str, typer.Option(help="Which loads, separated by commas.")] = ",".join(loads(save_minutes=1)),
    save_minutes: Annotated[float, typer.Option(help="Between two checkpoints of a state of 100 MB or more.")] = 2.0,
) -> None:
    """Measure the pause of a training at a change of size, and the lost steps: torchrun, Elastic mode, the library."""
    known = loads(save_minutes=save_minutes)
    chosen_loads = [known[name] for name in _chosen(load, known, "load")]
    bench = _Bench(_chosen(systems, SYSTEMS, "system"), _chosen(changes, ALL_CHANGES, "change"))
    console, machine_load = Console(width=150, highlight=False), os.getloadavg()[0]
    bench.lose_masters(Load(SMALL.name, save_minutes=save_minutes), runs=runs)
    for number, each in enumerate(chosen_loads):
        bench.run(each, runs=1 if number else runs, only=COMPARED if number else tuple(SYSTEMS))
    for name, costs in bench.costs.items():
        report.show(costs, console, title=known[name].title)
    compared = import_seconds() if {"tuned", "library"} <= set(bench.costs[SMALL.name]) else None
    print(report.line(bench.costs, load=machine_load, import_seconds=compared), flush=True)


class _Bench:
    """`costs` are kept by load, system and change."""

    def __init__(self, systems: list[str], changes: list[str]) -> None:
        self._systems, self._changes = systems, changes
        self._progress = Progress()
        self.costs: defaultdict[str, Table] = defaultdict(lambda: defaultdict(dict))

    def lose_masters(self, load: Load, *, runs: int) -> None:
        """Measure the loss of masters on a real cluster. Systems alternate, so that other load affects all alike."""
        cases = [(number, system) for number in range(runs) for system in self._systems if system in COMPARED]
        if lost_master.NAME not in self._changes or not cases:
            return
        with lost_master.standing(CLUSTER, self._progress) as place:
            for count, (number, system) in enumerate(cases):
                with self._progress.step(f"cluster: {system}: {lost_master.NAME}, run {number + 1}"):
                    cost = lost_master.measure(place, SYSTEMS[system], load, number=count)
                self._keep(load, system, lost_master.NAME, cost)

    def run(self, load: Load, *, runs: int, only: Collection[str]) -> None:
        """Measure the changes without Kubernetes, in alternating runs as well."""
        changes = [change for change in self._changes if change in CHANGES]
        cases = [(system, change) for system in self._systems if system in only for change in changes]
        for number in range(1, runs + 1):
            # The place of the change in an epoch differs in each run.
            steps = STEADY_STEPS + number * EPOCH_STEPS * 7 // 10 % EPOCH_STEPS
            for system, change in cases:
                with (
                    self._progress.step(f"{load.name}: {system}: {change}, run {number}"),
                    tempfile.TemporaryDirectory(prefix="rescale-") as folder,
                ):
                    result = measure(SYSTEMS[system], change, Options(Path(folder) / "run", load, steps=steps))
                self._keep(load, system, change, result.cost)
                if result.cost is None and SYSTEMS[system].is_elastic:
                    self._progress.say(result.logs)

    def _keep(self, load: Load, system: str, change: str, cost: Cost | None) -> None:
        self.costs[load.name][system].setdefault(change, []).append(cost)
        told = f"pause {cost.pause:.3f} s, {cost.loss:.0f} steps not done, {cost.lost} again" if cost else "never"
        self._progress.say(f"{load.name}: {system}: {change}: {told}")


def _chosen(names: str, known: Collection[str], what: str) -> list[str]:
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        if name not in known:
            raise BenchError(f"there is no {what} {name!r}; there are {', '.join(known)}")
    return chosen


if __name__ == "__main__":
    command_line.run(app, program="bench")
