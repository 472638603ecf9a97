"""`python -m benchmarks.passes`: runs the operator's loop under each load in memory, measures, prints."""

from __future__ import annotations

import json
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.passes.loads import LOADS
from benchmarks.passes.measure import measure
from devcluster import command_line

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def passes(
    part: Annotated[float, typer.Option(help="The part of each load.")] = 1.0,
    only: Annotated[str, typer.Option(help="Only loads whose names contain this text.")] = "",
) -> None:
    """What passes cost under heavy loads; goals: 2 s of CPU for a pass, 1 s for a turn of the event loop."""
    table = Table(title="CPU seconds", title_justify="left")
    for column in ("load", "when", "passes", "longest pass", "typical", "longest turn"):
        table.add_column(column, justify="left" if column in ("load", "when") else "right")
    for name, (make, count) in LOADS.items():
        if only not in name:
            continue
        for when, times in measure(make(round(count * part))).items():
            longest, typical = max(times.passes, default=0.0), median(times.passes or [0.0])
            table.add_row(
                f"{round(count * part)} {name}",
                when,
                str(len(times.passes)),
                f"{longest:.3f}",
                f"{typical:.3f}",
                f"{times.gap:.3f}",
            )
            figures = {"load": name, "when": when, "pass": round(longest, 4), "turn": round(times.gap, 4)}
            print(json.dumps(figures), flush=True)
    Console(width=120, highlight=False).print(table)


if __name__ == "__main__":
    command_line.run(app, program="bench")
