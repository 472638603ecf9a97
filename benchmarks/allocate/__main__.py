"""`python -m benchmarks.allocate`: builds the cluster in memory, measures, prints."""

from __future__ import annotations

import json
from statistics import median, quantiles
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.allocate.measure import Figures, measure
from benchmarks.allocate.scenario import Scenario
from devcluster import command_line

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def allocate(
    nodes: Annotated[int, typer.Option(help="Nodes of 8 GPUs each.")] = 500,
    jobs: Annotated[int, typer.Option(help="Jobs, all of which want more GPUs.")] = 1000,
    teams: Annotated[int, typer.Option(help="Teams.")] = 20,
    pods: Annotated[int, typer.Option(help="Pods of all kinds.")] = 30_000,
    full: Annotated[int, typer.Option(help="Passes over everything.")] = 20,
    changes: Annotated[int, typer.Option(help="Passes after one change.")] = 50,
) -> None:
    """How long one decision about a large cluster takes."""
    plan = Scenario(nodes=nodes, jobs=jobs, teams=teams, pods=pods)
    figures = measure(plan, full=full, changes=changes)
    _show(figures, plan, Console(width=120, highlight=False))
    print(json.dumps(figures.summary()), flush=True)


def _show(figures: Figures, plan: Scenario, console: Console) -> None:
    title = f"{plan.gpus} GPUs, {plan.nodes} nodes, {plan.jobs} jobs, {plan.teams} teams, {plan.pods} pods"
    table = Table(title=title, title_justify="left")
    for column in ("what", "p50", "p90", "n", "goal"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for part, times in figures.full.items():
        _add(table, f"a pass over everything, {part:.0%} of the cluster", times, "< 100 ms" if part == 1 else "")
    for what, times in figures.change.items():
        _add(table, f"a pass after one change: {what}", times, "< 10 ms")
    console.print(table)


def _add(table: Table, what: str, times: list[float], goal: str) -> None:
    slow = quantiles(times, n=10)[-1] if len(times) > 1 else times[0]
    table.add_row(what, f"{median(times):.1f} ms", f"{slow:.1f} ms", str(len(times)), goal)


if __name__ == "__main__":
    command_line.run(app, program="bench")
