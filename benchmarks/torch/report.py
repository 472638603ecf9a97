"""The trainings beside each other: two tables for people, one line of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.torch import figures
from benchmarks.torch.figures import Row
from benchmarks.torch.hardware import Hardware
from benchmarks.torch.ways import WAYS

MEGABYTE = 1 << 20
COLUMNS = (
    "way",
    "processes",
    "images/s",
    "s per epoch",
    "speed-up",
    "efficiency",
    "CPU s per epoch",
    "peak memory",
    "busy",
    "accuracy",
)


def show(rows: Sequence[Row], hardware: Hardware, console: Console, *, title: str) -> None:
    """Everything that is for people, on `console`."""
    table = Table(title=title, title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "way" else "right")
    ratios = figures.ratios(rows)
    for row in rows:
        cells = _cells(row, ratios.get(f"{row.name}_speed_up")) if row.results else ["-"]
        table.add_row(row.way.title, str(row.size), *cells)
    console.print(table)
    for row in rows:
        if row.reason:
            console.print(f"{row.way.title} with {row.size} was left out: {row.reason}.")
    console.print(_compared(rows, hardware))
    for sentence in figures.cannot_show(rows, hardware):
        console.print(sentence)


def line(rows: Sequence[Row], hardware: Hardware) -> str:
    """All figures as one line of JSON. Only its ratios mean something on another machine."""
    measured = [row for row in rows if row.results]
    told = {
        "hardware": str(hardware),
        "ways": {row.name: _keys(row) for row in measured},
        "skipped": {row.name: row.reason for row in rows if row.reason},
        "cannot_show": figures.cannot_show(rows, hardware),
        "load": round(hardware.load, 2),
        "ratios": figures.ratios(rows),
    }
    return json.dumps(told)


def _keys(row: Row) -> dict[str, object]:
    return {
        "images_per_s": round(row.images_per_second, 1),
        "epoch_s": round(row.epoch_seconds, 3),
        "cpu_s": round(row.cpu_seconds, 3),
        "peak_mb": round(row.peak_bytes / MEGABYTE),
        "busy": [round(share, 2) for share in row.busy],
        "accuracy": round(row.accuracy, 4),
    }


def _cells(row: Row, speed_up: float | None) -> list[str]:
    return [
        f"{row.images_per_second:,.0f}",
        f"{row.epoch_seconds:.2f}",
        f"{speed_up:.2f}" if speed_up else "",
        f"{speed_up / row.size:.0%}" if speed_up else "",
        f"{row.cpu_seconds:.2f}",
        f"{row.peak_bytes / MEGABYTE:,.0f} MB",
        " ".join(f"{share:.0%}" for share in row.busy),
        f"{row.accuracy:.1%}",
    ]


def _compared(rows: Sequence[Row], hardware: Hardware) -> Table:
    seconds = ", ".join(f"{WAYS[name].title} {value:,.0f} s" for name, value in figures.PUBLISHED.items())
    table = Table(title=f"Published, ResNet-50 on ImageNet with 8 A100, an epoch: {seconds}", title_justify="left")
    for column in ("how many times faster", "published", "here", ""):
        table.add_column(column, justify="right" if column in ("published", "here") else "left")
    for step in figures.steps(rows, hardware):
        pair = f"{WAYS[step.faster].title} over {WAYS[step.slower].title}"
        here = f"{step.here:.2f}, with {step.size}" if step.here else "-"
        table.add_row(pair, f"{step.published:.2f}", here, step.remark)
    return table
