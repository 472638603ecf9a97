"""Compares the policies: tables for readers and for the page, one line of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite

from benchmarks.policy import figures
from benchmarks.policy.figures import OURS, POLICIES, WHOLE_JOBS, Interval, Run
from benchmarks.policy.model import Mode
from benchmarks.policy.traces import HOUR
from benchmarks.policy.variants import VARIANTS
from benchmarks.torch.report import table

RENEWED_BY = "<!-- figures: `make bench-policy` renews them -->"
GOAL_GOODPUT, GOAL_LOST, CONTROL_MARGIN = 1.15, 0.5, 0.02


def markdown(runs: Sequence[Run], control: Sequence[Run], variants: Mapping[str, Sequence[Run]]) -> str:
    """The report for readers: tables in Markdown, which are readable as plain text."""
    seeds = len({run.seed for run in runs})
    parts = [
        [f"{seeds} seeds; in brackets 95 % intervals over seeds."],
        _policies(runs),
        ["Where GPU-hours went that are lost, in a run:"],
        _losses(runs),
        [f"{OURS} over {WHOLE_JOBS}:".capitalize()],
        _ratios(runs, control, variants),
        _verdict(runs, control),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _policies(runs: Sequence[Run]) -> list[str]:
    columns = (
        "policy",
        "GPUs held",
        "goodput",
        "jobs done",
        "GPU-hours lost",
        "entitled wait p50",
        "p95",
        "changes",
        "undone within 10 min",
        "flaps",
    )
    return table(columns, [_row(policy, figures.of(runs, policy)) for policy in POLICIES])


def _row(policy: str, runs: Sequence[Run]) -> tuple[str, ...]:
    return (
        policy,
        f"{figures.utilisation(runs):.1%}",
        figures.interval(runs, figures.goodput).text(3),
        f"{figures.done(runs):.0%}",
        figures.interval(runs, figures.lost_hours).text(1),
        f"{figures.wait(0.5)(runs):.0f} s",
        f"{figures.interval(runs, figures.wait(0.95)).text(0)} s",
        f"{figures.mean('changes')(runs):.0f}",
        f"{figures.mean('undone')(runs):.0f}",
        figures.interval(runs, figures.mean("flaps")).text(1),
    )


def _losses(runs: Sequence[Run]) -> list[str]:
    columns = ("policy", "done again after a change", "after a loss", "no step", *(f"of it {mode}" for mode in Mode))
    rows = []
    for policy in POLICIES:
        mine = figures.of(runs, policy)
        by_cause = [sum(run.lost[cause] for run in mine) for cause in ("change", "loss", "stopped")]
        by_mode = [sum(run.lost_by_mode[mode] for run in mine) for mode in Mode]
        rows.append((policy, *(f"{seconds / len(mine) / HOUR:.1f}" for seconds in (*by_cause, *by_mode))))
    return table(columns, rows)


def _ratios(runs: Sequence[Run], control: Sequence[Run], variants: Mapping[str, Sequence[Run]]) -> list[str]:
    rows = [_ratio_row("as above", runs), _ratio_row("control: no job can change its size", control)]
    rows += [_ratio_row(VARIANTS[name].title, some) for name, some in variants.items()]
    return table(("assumption", "seeds", "goodput", "GPU-seconds lost", "entitled wait p95", "flaps"), rows)


def _ratio_row(title: str, runs: Sequence[Run]) -> tuple[str, ...]:
    mine = figures.of(runs, OURS)
    return (
        title,
        str(len(mine)),
        figures.ratio(runs, figures.goodput).text(3),
        figures.ratio(runs, figures.lost_hours).text(2),
        f"{figures.wait(0.95)(mine):.0f} s",
        f"{figures.mean('flaps')(mine):.1f}",
    )


def _verdict(runs: Sequence[Run], control: Sequence[Run]) -> list[str]:
    goodput, lost = figures.ratio(runs, figures.goodput), figures.ratio(runs, figures.lost_hours)
    fair = abs(figures.ratio(control, figures.goodput).value - 1) <= CONTROL_MARGIN
    return [
        f"* Goal: goodput {GOAL_GOODPUT} times that of {WHOLE_JOBS}. {_reached(goodput.value >= GOAL_GOODPUT)}"
        f" ({goodput.value:.2f}).",
        f"* Goal: at most {GOAL_LOST} times as many GPU-seconds lost. {_reached(lost.value <= GOAL_LOST)}"
        f" ({lost.value:.2f}).",
        f"* Control: within {CONTROL_MARGIN} of 1.00. {_reached(fair)}.",
    ]


def _reached(is_so: bool) -> str:
    return "Reached" if is_so else "Not reached"


def line(runs: Sequence[Run], control: Sequence[Run], variants: Mapping[str, Sequence[Run]]) -> str:
    """All figures as one line of JSON."""
    mine = figures.of(runs, OURS)
    told = {
        "goodput_ratio": figures.ratio(runs, figures.goodput),
        "lost_ratio": figures.ratio(runs, figures.lost_hours),
        "entitled_wait_p95_s": figures.interval(mine, figures.wait(0.95)),
        "flaps": figures.interval(mine, figures.mean("flaps")),
        "control_goodput_ratio": figures.ratio(control, figures.goodput),
    }
    values: dict[str, object] = {name: _rounded(one.value) for name, one in told.items()}
    values |= {f"{name}_95": _ends(one) for name, one in told.items()}
    values["variants"] = {name: _short(some) for name, some in variants.items()}
    return json.dumps({**values, "seeds": len(mine)})


def _ends(one: Interval) -> list[float | None]:
    return [_rounded(one.low), _rounded(one.high)]


def _rounded(value: float) -> float | None:
    """The value for JSON, which has no infinity: None if there was nothing to compare with."""
    return round(value, 3) if isfinite(value) else None


def _short(runs: Sequence[Run]) -> dict[str, float | None]:
    goodput, lost = figures.ratio(runs, figures.goodput), figures.ratio(runs, figures.lost_hours)
    return {"goodput_ratio": _rounded(goodput.value), "lost_ratio": _rounded(lost.value)}
