"""`python -m benchmarks.overhead`: pairs of trainings with and without the library, on this machine's CPUs."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.overhead import figures
from benchmarks.overhead.figures import Pair, Ratio, Run
from benchmarks.overhead.runs import PROCESSES, Runner
from devcluster import command_line
from devcluster.progress import Progress

WARM_UP = 50
ROUNDS = 30
RATIO_GOAL, COMMIT_GOAL_US = 1.03, 100.0

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def overhead(
    pairs: Annotated[int, typer.Option(help="Pairs of trainings, one with and one without the library.", min=1)] = 20,
    steps: Annotated[int, typer.Option(help="Steps that are measured in each training.", min=2)] = 300,
) -> None:
    """Measure the additional cost of a step with the library."""
    progress, load = Progress(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        runner = Runner(Path(folder), steps=steps, warm_up=WARM_UP)
        with progress.step("the library alone"):
            commit_us = runner.commit_us(ROUNDS)
        made = [_pair(runner, number, pairs, progress) for number in range(1, pairs + 1)]
    title = f"A step of {PROCESSES} processes under torchrun, {pairs} pairs of {steps} steps, load before {load:.1f}"
    _show(made, commit_us, title, Console(width=120, highlight=False))
    print(json.dumps(summary(made, commit_us)), flush=True)


def summary(pairs: list[Pair], commit_us: float) -> dict[str, float]:
    """The figures by which the benchmark is judged."""
    ratio = figures.steps(pairs)
    return {
        "overhead_ratio": round(ratio.value, 4),
        "overhead_hi": round(ratio.high, 4),
        "commit_us": round(commit_us, 1),
    }


def _pair(runner: Runner, number: int, pairs: int, progress: Progress) -> Pair:
    with progress.step(f"pair {number} of {pairs}"):
        pair = runner.pair(number)
    progress.say(f"plain {_ms(pair.plain.step)}, library {_ms(pair.library.step)}: {_ratio(figures.steps([pair]))}")
    return pair


def _show(pairs: list[Pair], commit_us: float, title: str, console: Console) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("what", "plain", "library", "ratio", "95 % of it", "goal"):
        table.add_column(column, justify="left" if column == "what" else "right")
    goal = f"upper end <= {RATIO_GOAL}"
    _add(table, "a step", pairs, lambda run: run.step, figures.steps(pairs), goal)
    _add(table, "a step, the fastest tenth", pairs, lambda run: run.fast, figures.fast(pairs))
    _add(table, "CPU time of rank 0 per step", pairs, lambda run: run.cpu, figures.cpu(pairs))
    table.add_row("CPU time of the library alone", "", f"{commit_us:.1f} us", "", "", f"< {COMMIT_GOAL_US:.0f} us")
    console.print(table)


def _add(
    table: Table, what: str, pairs: list[Pair], seconds: Callable[[Run], float], ratio: Ratio, goal: str = ""
) -> None:
    plain = _ms(median(seconds(pair.plain) for pair in pairs))
    library = _ms(median(seconds(pair.library) for pair in pairs))
    table.add_row(what, plain, library, _ratio(ratio), f"{ratio.low:.4f} to {ratio.high:.4f}", goal)


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.value:.4f}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms"


if __name__ == "__main__":
    command_line.run(app, program="bench")
