"""Compares the trainings: tables for readers and for the page, one line of JSON for programs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.live.errors import BenchError
from benchmarks.torch import figures
from benchmarks.torch.figures import PUBLISHED, Row
from benchmarks.torch.hardware import Hardware
from benchmarks.torch.ways import WAYS

MEGABYTE = 1 << 20
COLUMNS = (
    "way",
    "started",
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
BEGIN, END = "<!-- figures: `make bench-torch` renews them -->", "<!-- end of the figures -->"
"""The marks in a page: this program writes the part between them."""


def markdown(rows: Sequence[Row], hardware: Hardware, *, title: str) -> str:
    """The report for readers: tables in Markdown, which are readable as plain text."""
    ratios = figures.ratios(rows)
    cells = [_cells(row, ratios.get(f"{row.name}_speed_up")) for row in rows if row.results]
    left_out = [f"* {way} was left out: {reason}." for way, reason in _left_out(rows).items()]
    cannot = [f"* {sentence}" for sentence in figures.cannot_show(rows, hardware)]
    compared = [
        (
            f"{step.faster.title} over {step.slower.title}",
            f"{step.published:.2f}",
            f"{step.here:.2f}, with {step.size}" if step.here else "-",
            step.remark,
        )
        for step in figures.steps(rows, hardware)
    ]
    published = [
        (WAYS[each.way].title, each.devices, f"{each.seconds:,.0f}", f"{each.busy:.1%}" if each.busy else "")
        for each in PUBLISHED
    ]
    unrest = figures.unrest(hardware)
    parts = [
        [f"{title}; {hardware}."],
        *([[f"**{unrest}**"]] if unrest else []),
        table(COLUMNS, cells),
        ["What this machine cannot show:", "", *left_out, *cannot],
        ["A published run, ResNet-50 on ImageNet, A100:"],
        table(("way", "devices", "s per epoch", "busy"), published),
        ["Its order, and the order here:"],
        table(("how many times faster", "published", "here", ""), compared),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _left_out(rows: Sequence[Row]) -> dict[str, str]:
    """Reasons by way, and by how many processes where that matters."""
    sizes = defaultdict[tuple[str, str], list[str]](list)
    for row in rows:
        if row.reason:
            sizes[row.way.title, row.reason].append(str(row.size))
    return {f"{way} with {' and '.join(all_of)}": reason for (way, reason), all_of in sizes.items()}


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, with cells padded to the width of their column."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (columns, *rows)]
    rule = "-|-".join("-" * width for width in widths)
    return [f"| {lines[0]} |", f"|-{rule}-|", *(f"| {line} |" for line in lines[1:])]


def renew(page: Path, told: str, *, begin: str = BEGIN) -> None:
    """Replace the tables in the page. Raises BenchError if the page has no place for them."""
    before, found, rest = page.read_text().partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise BenchError(f"{page} has no place for the figures: put the lines {begin} and {END} where they are to be")
    page.write_text(f"{before}{begin}\n\n{told}\n{END}{after}")


def line(rows: Sequence[Row], hardware: Hardware) -> str:
    """All figures as one line of JSON. Only its ratios mean something on another machine."""
    measured = [row for row in rows if row.results]
    told = {
        "hardware": str(hardware),
        "ways": {row.name: _keys(row) for row in measured},
        "skipped": {row.name: row.reason for row in rows if row.reason},
        "cannot_show": [*filter(None, [figures.unrest(hardware)]), *figures.cannot_show(rows, hardware)],
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
        row.way.title,
        row.way.started,
        str(row.size),
        f"{row.images_per_second:,.0f}",
        f"{row.epoch_seconds:.2f}",
        f"{speed_up:.2f}" if speed_up else "",
        f"{speed_up / row.size:.0%}" if speed_up else "",
        f"{row.cpu_seconds:.2f}",
        f"{row.peak_bytes / MEGABYTE:,.0f} MB",
        " ".join(f"{share:.0%}" for share in row.busy),
        f"{row.accuracy:.1%}",
    ]
