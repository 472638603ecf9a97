"""The costs beside each other: a table for people, a picture of the worst pauses, one line of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.live.quantile import quantile
from benchmarks.rescale.steps import Cost, Step

Costs = Mapping[str, Mapping[str, Sequence[Cost | None]]]
"""By system, then by change; None where the job did not train again in time."""

WIDTH, ROW, LEFT, RIGHT, TOP = 860, 26, 190, 20, 50
SECONDS = 35.0
BEFORE = 5.0
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df")


@dataclass(frozen=True, slots=True)
class Picture:
    """The survivor's steps in one change, to be drawn."""

    system: str
    change: str
    decided: float
    steps: Sequence[Step]


def keys(changes: Mapping[str, Sequence[Cost | None]]) -> dict[str, float | None]:
    """The figures of one system under the names that programs read. A change that never ended in time is null."""
    figures: dict[str, float | None] = {}
    for name, costs in changes.items():
        done = [cost for cost in costs if cost is not None]
        all_done = len(done) == len(costs)
        figures[f"{name}_p50_s"] = _rounded(median(cost.pause for cost in done)) if all_done else None
        figures[f"{name}_max_s"] = _rounded(max(cost.pause for cost in done)) if all_done else None
        figures[f"{name}_extra_p50_s"] = _rounded(median(cost.extra for cost in done)) if all_done else None
        figures[f"{name}_loss_p50_steps"] = _rounded(median(cost.loss for cost in done)) if all_done else None
    seen = [cost for costs in changes.values() for cost in costs if cost is not None]
    figures["steps_lost_max"] = max((cost.lost for cost in seen), default=None)
    planned = [cost for name in ("join", "leave") for cost in changes.get(name, ()) if cost is not None]
    figures["epochs_repeated_planned"] = sum(cost.epochs for cost in planned)
    return figures


def ratios(costs: Costs, system: str, *, less: float = 0.0) -> dict[str, float]:
    """How many times shorter the median pause of a system is than that of `tuned` less so many seconds, by change."""
    mine, tuned = keys(costs.get(system, {})), keys(costs.get("tuned", {}))
    both = {name: (mine.get(f"{name}_p50_s"), tuned.get(f"{name}_p50_s")) for name in costs.get(system, {})}
    return {name: round((t - less) / m, 1) for name, (m, t) in both.items() if m and t}


def show(costs: Costs, console: Console, *, kind: str) -> None:
    """The table, on `console`."""
    table = Table(title=f"What a change costs a training script: {kind}")
    for column in (
        "system",
        "change",
        "pause p50",
        "max",
        "extra p50",
        "loss p50",
        "again max",
        "parts of the median (s)",
    ):
        is_number = column in ("pause p50", "max", "extra p50", "loss p50", "again max")
        table.add_column(column, justify="right" if is_number else "left")
    for system, changes in costs.items():
        for change, made in changes.items():
            table.add_row(system, change, *_cells(made))
        table.add_section()
    console.print(table)


def line(costs: Costs, busy: Costs, *, load: float, import_seconds: float | None = None) -> str:
    """All figures as one line of JSON. `import_seconds` is what of a pause of `tuned` goes into importing torch."""
    figures: dict[str, object] = {system: keys(changes) for system, changes in costs.items()}
    figures["tuned_over_plain"] = ratios(costs, "plain")
    if "library" in costs:
        figures["tuned_over_library"] = ratios(costs, "library")
    if import_seconds is not None:
        figures["import_torch_s"] = _rounded(import_seconds)
        figures["tuned_without_import_over_library"] = ratios(costs, "library", less=import_seconds)
    if busy:
        figures["cpu_bound"] = {system: keys(changes) for system, changes in busy.items()}
    figures["load"] = _rounded(load)
    return json.dumps(figures)


def svg_of(pictures: Sequence[Picture]) -> str:
    """A row per change: a tick for each step of the survivor, from shortly before the decision."""
    height = TOP + ROW * len(pictures) + 40
    systems = list(dict.fromkeys(picture.system for picture in pictures))
    rows = [_row(p, TOP + ROW * i, COLOURS[systems.index(p.system) % len(COLOURS)]) for i, p in enumerate(pictures)]
    ticks = [
        f'<text x="{_x(float(s)):.0f}" y="{height - 22}" text-anchor="middle">{s} s</text>' for s in range(0, 31, 5)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
            ' font-size="13" fill="#57606a">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            '<text x="10" y="22" font-size="15" fill="#1f2328">Steps of a survivor around a change of size</text>',
            *rows,
            f'<path d="M{_x(0):.0f} {TOP - 12}V{height - 40}" stroke="#8c959f" stroke-dasharray="3 3"/>',
            *ticks,
            f'<text x="{WIDTH - RIGHT}" y="{height - 5}" text-anchor="end">time since the decision</text>',
            "</svg>\n",
        ]
    )


def _row(picture: Picture, y: int, colour: str) -> str:
    shown = [step for step in picture.steps if -BEFORE <= step.time - picture.decided <= SECONDS - BEFORE]
    path = "".join(f"M{_x(step.time - picture.decided):.1f} {y - 6}v12" for step in shown)
    label = f'<text x="10" y="{y + 5}" fill="#1f2328">{picture.system}: {picture.change}</text>'
    return f'{label}<path d="{path}" stroke="{colour}"/>'


def _x(seconds: float) -> float:
    return LEFT + (seconds + BEFORE) / SECONDS * (WIDTH - LEFT - RIGHT)


def _cells(costs: Sequence[Cost | None]) -> list[str]:
    done = sorted((cost for cost in costs if cost is not None), key=lambda cost: cost.pause)
    never = "never" if len(done) < len(costs) else ""
    if not done:
        return [never, never, "", "", "", ""]
    pauses = [cost.pause for cost in done]
    middle = done[(len(done) - 1) // 2]
    parts = " ".join(f"{name} {seconds:.2f}" for name, seconds in middle.parts.items())
    return [
        f"{quantile(pauses, 0.5):.3f} s",
        never or f"{pauses[-1]:.3f} s",
        f"{median(cost.extra for cost in done):.3f} s",
        f"{median(cost.loss for cost in done):.0f}",
        str(max(cost.lost for cost in done)),
        parts,
    ]


def _rounded(value: float) -> float:
    return round(value, 3)
