"""The figures beside the goals, for readers, and as one line of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.live.quantile import MILLISECONDS, quantile
from benchmarks.react.latencies import Reaction
from benchmarks.react.weigh import Rest


@dataclass(frozen=True, slots=True)
class Figures:
    """All measurements. Lags in seconds; passes as seconds and number; the leader is the first of `rest`."""

    react: Sequence[Reaction]
    scale: Sequence[Reaction]
    recreate: Sequence[Reaction]
    lags: Sequence[float]
    start_lags: Sequence[float]
    unchanged: Sequence[tuple[float, float]]
    rest: Sequence[Rest]
    load: float

    def summary(self) -> dict[str, float]:
        """The figures of the last line."""
        return {
            "react_p50_s": round(quantile(_facts(self.react), 0.5), 4),
            "react_p99_s": round(quantile(_facts(self.react), 0.99), 4),
            "scale_p50_s": round(quantile(_requests(self.scale), 0.5), 4),
            "recreate_p50_s": round(quantile(_facts(self.recreate), 0.5), 4),
            "idle_rss_mb": round(self.rest[0].resident_megabytes, 1),
            "idle_cpu_percent": round(self.rest[0].cpu_percent, 2),
        }


def show(figures: Figures, console: Console) -> None:
    """A table with a line for each figure; the goals are for medians. Then the line of JSON."""
    table = Table(title=f"Reactions of the operator (load average of the machine: {figures.load:.1f})")
    for column in ("what", "p50", "p99", "worst", "number", "goal"):
        table.add_column(column, justify="left" if column == "what" else "right")
    _add_reactions(table, figures)
    _add_latency(table, "status lag: a pod is ready -> its job's status counts it", figures.lags, goal="< 1000 ms")
    _add_latency(table, "  while all jobs start", figures.start_lags)
    seconds, passes = (sum(each) for each in zip(*figures.unchanged, strict=True))
    mean = f"{seconds / passes * MILLISECONDS:.1f} ms"
    table.add_row("pass in which nothing changes (mean)", mean, "", "", f"{passes:.0f}", "< 10 ms")
    for number, rest in enumerate(figures.rest):
        role = "standby" if number else "leader"
        table.add_row(f"memory at rest, {role}", f"{rest.resident_megabytes:.0f} MB", "", "", "", "< 120 MB")
        table.add_row(f"CPU at rest, {role}", f"{rest.cpu_percent:.2f} %", "", "", "", "< 2 %")
    console.print(table)
    print(json.dumps(figures.summary()), flush=True)


def _add_reactions(table: Table, figures: Figures) -> None:
    react, scale, recreate = figures.react, figures.scale, figures.recreate
    arrival = "  from the arrival of the DELETE"
    _add_latency(table, "react: a foreign pod is gone -> our pod created", _facts(react), goal="< 20 ms")
    _add_latency(table, arrival, _requests(react))
    _add_latency(table, "scale: a request for two pods -> the second created", _requests(scale), goal="< 20 ms")
    _add_latency(table, "  from the answer to the request", _facts(scale))
    _add_latency(table, "recreate: our worker is gone -> its successor created", _facts(recreate), goal="< 35 ms")
    _add_latency(table, arrival, _requests(recreate))


def _facts(reactions: Sequence[Reaction]) -> list[float]:
    return [each.from_fact for each in reactions]


def _requests(reactions: Sequence[Reaction]) -> list[float]:
    return [each.from_request for each in reactions]


def _add_latency(table: Table, what: str, seconds: Sequence[float], *, goal: str = "") -> None:
    shown = [f"{quantile(seconds, share) * MILLISECONDS:.1f} ms" for share in (0.5, 0.99, 1)]
    table.add_row(what, *shown, str(len(seconds)), goal)
