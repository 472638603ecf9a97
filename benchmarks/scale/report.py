"""The figures beside the goals, for readers and for the page, and as one line of JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression

from benchmarks.live.quantile import MILLISECONDS, quantile
from benchmarks.react.latencies import Reaction
from benchmarks.scale.fill import Curve, Fill
from benchmarks.scale.single import Beside

RENEWED_BY = '<!-- figures: make bench-scale ARGS="--page docs/performance.md" -->'
Timed = Sequence[tuple[float, float]]
"""Seconds and number of observations, reading by reading."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """All measurements with one number of jobs: successors of `lost` workers, and passes without a change."""

    fill: Fill
    lost: Sequence[Reaction]
    unchanged: Timed

    @property
    def pods(self) -> int:
        """The pods of all jobs together."""
        return len(self.fill.curve.ready)

    @property
    def lost_p50(self) -> float:
        """Seconds from the end of a pod to its successor."""
        return quantile([each.from_fact for each in self.lost], 0.5)

    @property
    def pass_seconds(self) -> float:
        """The mean time of a pass without a change."""
        return sum(seconds for seconds, _ in self.unchanged) / sum(passes for _, passes in self.unchanged)


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures. `crowds` from the smallest to the largest; the plain client wrote the objects of `main`."""

    crowds: Sequence[Crowd]
    main: int
    same_objects: Curve
    pods_only: Curve
    lost: Beside
    freed: Beside
    scaled: Beside
    killed_s: float
    stopped_s: float
    start_s: float
    load: float

    @property
    def crowd(self) -> Crowd:
        """The crowd with which the plain client is compared."""
        return next(crowd for crowd in self.crowds if crowd.fill.jobs == self.main)

    @property
    def largest(self) -> Crowd:
        """The crowd in which operators were ended and started."""
        return self.crowds[-1]

    def ratios(self) -> dict[str, float]:
        """Ratios of the same run and machine: 1 is the plain client's figure."""
        ours = self.crowd.fill.curve
        return {
            "create_ratio": self.same_objects.created_seconds / ours.created_seconds,
            "running_ratio": self.same_objects.running_seconds / ours.running_seconds,
            "create_ratio_pods_only": self.pods_only.created_seconds / ours.created_seconds,
            "running_ratio_pods_only": self.pods_only.running_seconds / ours.running_seconds,
            "react_ratio": self.lost.ratio,
            "react_ratio_freed": self.freed.ratio,
            "react_ratio_scale": self.scaled.ratio,
            "fill_exponent": _exponent({crowd.pods: crowd.fill.curve.running_seconds for crowd in self.crowds}),
            "change_exponent": _exponent({crowd.pods: crowd.pass_seconds for crowd in self.crowds}),
        }

    def summary(self) -> dict[str, object]:
        """The figures of the last line."""
        fill = self.crowd.fill
        return {
            "jobs": fill.jobs,
            "pods": self.crowd.pods,
            "created_s": round(fill.curve.created_seconds, 2),
            "running_s": round(fill.curve.running_seconds, 2),
            "requests_per_pod": round(fill.requests_per_pod, 2),
            "status_writes_per_job": round(fill.statuses_per_job, 2),
            "status_lag_p99_s": round(quantile(fill.lags, 0.99), 3),
            f"rss_mb_{self.largest.pods}_pods": round(self.largest.fill.resident_megabytes, 1),
            f"start_s_{self.largest.pods}_pods": round(self.start_s, 2),
            "takeover_s": round(self.killed_s, 2),
            "takeover_after_stop_s": round(self.stopped_s, 2),
            "load": round(self.load, 2),
            "ratios": {name: round(value, 3) for name, value in self.ratios().items()},
        }


def _exponent(by_size: Mapping[int, float]) -> float:
    """The exponent k of a time that is proportional to size ** k: the slope of their logarithms."""
    return linear_regression(list(map(math.log, by_size)), list(map(math.log, by_size.values()))).slope


def line(figures: Figures | None, more: Mapping[str, object] | None = None) -> str:
    """One line of JSON. Only its ratios mean something on another machine."""
    return json.dumps({**(figures.summary() if figures else {}), **(more or {})})


def markdown(figures: Figures) -> str:
    """The tables of the page."""
    return "\n\n".join([_crowds(figures), _compared(figures), _rest(figures)])


def _crowds(figures: Figures) -> str:
    rows = [
        (
            f"{crowd.fill.jobs:,}",
            f"{crowd.pods:,}",
            f"{crowd.fill.curve.created_seconds:.1f} s",
            f"{crowd.fill.curve.running_seconds:.1f} s",
            f"{crowd.pods / crowd.fill.curve.created_seconds:.0f}",
            f"{crowd.fill.requests_per_pod:.2f}",
            f"{crowd.fill.statuses_per_job:.1f}",
            f"{quantile(crowd.fill.lags, 0.99):.2f} s",
            f"{crowd.fill.operator_cpu_seconds / crowd.pods * MILLISECONDS:.1f} ms",
            f"{crowd.fill.resident_megabytes:.0f} MB",
            f"{crowd.pass_seconds * MILLISECONDS:.1f} ms",
            f"{crowd.lost_p50 * MILLISECONDS:.0f} ms",
        )
        for crowd in figures.crowds
    ]
    names = (
        *("jobs", "pods", "all created", "all ready", "pods per s", "requests per pod", "statuses per job"),
        *("status behind its pods (p99)", "operator's CPU per pod", "its memory", "pass that changes nothing"),
        "lost pod to successor (p50)",
    )
    return table(names, rows)


def _compared(figures: Figures) -> str:
    ours = figures.crowd.fill.curve
    kinds = {
        "the operator": ours,
        "a plain client, the same objects and one status per job": figures.same_objects,
        "a plain client, only the pods": figures.pods_only,
    }
    rows = [
        (
            kind,
            f"{curve.created_seconds:.1f} s",
            f"{curve.running_seconds:.1f} s",
            f"{curve.created_seconds / ours.created_seconds:.2f}",
            f"{curve.running_seconds / ours.running_seconds:.2f}",
        )
        for kind, curve in kinds.items()
    ]
    names = (f"{figures.main:,} jobs at once", "all created", "all ready", "created, of ours", "ready, of ours")
    return table(names, rows)


def _rest(figures: Figures) -> str:
    ratios, pods = figures.ratios(), f"{figures.largest.pods:,}"
    rows = [
        ("created, beside the same objects by a plain client", f"{ratios['create_ratio']:.2f}", "at least 0.7"),
        ("ready, beside the same", f"{ratios['running_ratio']:.2f}", "at least 0.7"),
        ("created, beside the pods alone", f"{ratios['create_ratio_pods_only']:.2f}", "at least 0.4"),
        ("ready, beside the pods alone", f"{ratios['running_ratio_pods_only']:.2f}", "at least 0.4"),
        ("successor of a lost pod, beside a bare client that watches and posts", _beside(figures.lost), "1.5"),
        ("pod for a GPU that a foreign pod freed, beside the same", _beside(figures.freed), "1.5"),
        ("pod of a job that is scaled up by one, beside the same", _beside(figures.scaled), "1.5"),
        ("all pods ready grows with their number to the power of", f"{ratios['fill_exponent']:.2f}", "at most 1.1"),
        ("a pass that changes nothing, to the power of", f"{ratios['change_exponent']:.2f}", "at most 0.1"),
        (f"SIGKILL of the leader, {pods} pods, to the first new pod", f"{figures.killed_s:.1f} s", "under 20 s"),
        ("stop of the leader, the same", f"{figures.stopped_s:.1f} s", "under 2 s"),
        ("exec of the only operator, the same", f"{figures.start_s:.1f} s", "under 3 s"),
    ]
    return table(("what", "figure", "goal"), rows)


def _beside(each: Beside) -> str:
    ours, bare = each.ours_p50 * MILLISECONDS, each.bare_p50 * MILLISECONDS
    return f"{each.ratio:.2f} ({ours:.1f} / {bare:.1f} ms)"


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Of Markdown."""
    lines = [" | ".join(each) for each in (names, *rows)]
    rule = "|".join("---" if number == 0 else "--:" for number in range(len(names)))
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])
