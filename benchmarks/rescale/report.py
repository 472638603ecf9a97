"""The costs of all systems: a table for readers, one line of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.live.quantile import quantile
from benchmarks.rescale.loads import SMALL
from benchmarks.rescale.steps import Cost

Costs = Mapping[str, Mapping[str, Sequence[Cost | None]]]
"""By system, then by change; None where the job did not train again in time."""


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
    """The ratio of the median pause of `tuned`, less `less` seconds, to that of a system, by change."""
    mine, tuned = keys(costs.get(system, {})), keys(costs.get("tuned", {}))
    both = {name: (mine.get(f"{name}_p50_s"), tuned.get(f"{name}_p50_s")) for name in costs.get(system, {})}
    return {name: round((t - less) / m, 1) for name, (m, t) in both.items() if m and t}


def show(costs: Costs, console: Console, *, title: str) -> None:
    """The table, on `console`."""
    table = Table(title=f"What a change costs a training script: {title}")
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


def line(costs: Mapping[str, Costs], *, load: float, import_seconds: float | None = None) -> str:
    """All figures as one line of JSON: those of the small load, and under their names those of the others.

    `load` is the machine's. `import_seconds` is the part of a pause of `tuned` that imports torch.
    """
    small = costs.get(SMALL.name, {})
    figures = _figures(small)
    if import_seconds is not None:
        figures["import_torch_s"] = _rounded(import_seconds)
        figures["tuned_without_import_over_library"] = ratios(small, "library", less=import_seconds)
    for name, more in costs.items():
        if name != SMALL.name:
            figures[name] = {**_figures(more), "times_small": times(more, small)}
    figures["load"] = _rounded(load)
    return json.dumps(figures)


def _figures(costs: Costs) -> dict[str, object]:
    compared = [system for system in ("plain", "library") if system in costs and "tuned" in costs]
    return {
        **{system: keys(changes) for system, changes in costs.items()},
        **{f"tuned_over_{system}": ratios(costs, system) for system in compared},
    }


def times(costs: Costs, small: Costs) -> dict[str, dict[str, float]]:
    """How many times longer the median pause of each system is than with the small load, by change."""
    found: dict[str, dict[str, float]] = {}
    for system, changes in costs.items():
        mine, theirs = keys(changes), keys(small.get(system, {}))
        both = {name: (mine[f"{name}_p50_s"], theirs.get(f"{name}_p50_s")) for name in changes}
        found[system] = {name: round(m / t, 2) for name, (m, t) in both.items() if m and t}
    return found


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
