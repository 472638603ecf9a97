"""A soak as a picture: GPUs per team, processes that train, memory of the operators, faults across all. SVG, pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import TypeAlias

from tests.soak.faults import FAULT
from tests.soak.results import Result
from tests.soak.watch import Sample
from tests.soak.world import REAL_TEAMS, TRAINERS

WIDTH, LEFT, RIGHT, TOP = 960, 60, 110, 40
HEIGHT, BETWEEN, LABELS = 130, 34, 150
"""Of a panel, between two, and of what names the faults below the last."""
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#bf8700", "#8250df", "#0a9396", "#db61a2", "#57606a")
GREY, DARK = "#8c959f", "#1f2328"
Scale: TypeAlias = Callable[[float], float]
Points: TypeAlias = Sequence[tuple[float, float]]


def svg_of(result: Result) -> str:
    """The picture."""
    end = max([60.0, *(sample.seconds for sample in result.samples), *(event.ended for event in result.events)])

    def x(seconds: float) -> float:
        return LEFT + seconds / end * (WIDTH - LEFT - RIGHT)

    panels = (_fake_gpus, _real_gpus, _worlds, _memory)
    height = TOP + len(panels) * (HEIGHT + BETWEEN) + LABELS
    bottom = TOP + len(panels) * (HEIGHT + BETWEEN) - BETWEEN
    drawn = [line for i, panel in enumerate(panels) for line in panel(result, x, TOP + i * (HEIGHT + BETWEEN))]
    title = f"{result.minutes} minutes of soak, seed {result.seed}: grey lines are faults"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
            ' font-size="11" fill="#57606a">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            f'<text x="{LEFT}" y="18" font-size="15" fill="{DARK}">{title}</text>',
            *_faults(result, x, bottom),
            *drawn,
            *_minutes(end, x, bottom),
            "</svg>\n",
        ]
    )


# -- panels ----------------------------------------------------------------------------------------------------------


def _fake_gpus(result: Result, x: Scale, top: float) -> Iterator[str]:
    teams = [team for team in _teams(result.samples) if team not in REAL_TEAMS]
    yield from _stacked("GPUs in use on fake nodes, by team", teams, result.samples, x, top)


def _real_gpus(result: Result, x: Scale, top: float) -> Iterator[str]:
    teams = [team for team in _teams(result.samples) if team in REAL_TEAMS]
    yield from _stacked("GPUs in use on real nodes, by team", teams, result.samples, x, top)


def _worlds(result: Result, x: Scale, top: float) -> Iterator[str]:
    lines = {name: [(s.seconds, s.worlds.get(name, 0)) for s in result.samples] for name in TRAINERS}
    yield from _lines("processes that train", lines, x, top, unit="", steps=True)


def _memory(result: Result, x: Scale, top: float) -> Iterator[str]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for weight in result.weights:
        lines.setdefault(weight.process, []).append((weight.seconds, weight.megabytes))
    drawn = {f"process {i + 1}": points for i, points in enumerate(lines.values())}
    yield from _lines("memory of the operator's processes", drawn, x, top, unit=" MB", legend=False)


def _teams(samples: Sequence[Sample]) -> list[str]:
    return list(dict.fromkeys(team for sample in samples for team in sample.gpus))


def _stacked(title: str, teams: Sequence[str], samples: Sequence[Sample], x: Scale, top: float) -> Iterator[str]:
    """One team's area upon the other's."""
    most = max([1, *(sum(sample.gpus.get(team, 0) for team in teams) for sample in samples)])
    y = _scale(most, top)
    below = [0.0] * len(samples)
    for colour, team in zip(COLOURS, teams, strict=False):
        above = [low + sample.gpus.get(team, 0) for low, sample in zip(below, samples, strict=True)]
        seconds = [sample.seconds for sample in samples]
        edge = _stairs(list(zip(seconds, above, strict=True)), x, y)
        back = _stairs(list(zip(seconds, below, strict=True)), x, y)
        ring = " ".join([*edge, *reversed(back)])
        yield f'<polygon points="{ring}" fill="{colour}" fill-opacity="0.55"/>'
        below = above
    yield from _frame(title, most, top, unit="")
    yield from _legend(teams, top)


def _lines(
    title: str,
    lines: Mapping[str, Points],
    x: Scale,
    top: float,
    *,
    unit: str,
    steps: bool = False,
    legend: bool = True,
) -> Iterator[str]:
    most = max([1.0, *(value for points in lines.values() for _, value in points)])
    y = _scale(most, top)
    for i, points in enumerate(lines.values()):
        path = _stairs(points, x, y) if steps else [f"{x(at):.1f},{y(value):.1f}" for at, value in points]
        colour = COLOURS[i % len(COLOURS)]
        yield f'<polyline points="{" ".join(path)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    yield from _frame(title, most, top, unit=unit)
    if legend:
        yield from _legend(list(lines), top)


# -- parts -----------------------------------------------------------------------------------------------------------


def _scale(most: float, top: float) -> Scale:
    return lambda value: top + HEIGHT - value / most * HEIGHT


def _stairs(points: Points, x: Scale, y: Scale) -> list[str]:
    """A value holds until the next one."""
    found: list[str] = []
    before = None
    for seconds, value in points:
        if before is not None and before != value:
            found.append(f"{x(seconds):.1f},{y(before):.1f}")
        if before != value or (seconds, value) == points[-1]:
            found.append(f"{x(seconds):.1f},{y(value):.1f}")
        before = value
    return found


def _frame(title: str, most: float, top: float, *, unit: str) -> Iterator[str]:
    yield f'<text x="{LEFT}" y="{top - 6}" fill="{DARK}">{title}</text>'
    yield f'<path d="M{LEFT} {top}V{top + HEIGHT}H{WIDTH - RIGHT}" fill="none" stroke="{GREY}"/>'
    for value in (0.0, most):
        at = top + HEIGHT - value / most * HEIGHT + 4
        yield f'<text x="{LEFT - 6}" y="{at:.1f}" text-anchor="end">{value:.0f}{unit}</text>'


def _legend(names: Sequence[str], top: float) -> Iterator[str]:
    for i, (colour, name) in enumerate(zip(COLOURS, names, strict=False)):
        at = top + 10 + 15 * i
        yield f'<rect x="{WIDTH - RIGHT + 12}" y="{at - 8}" width="9" height="9" fill="{colour}"/>'
        yield f'<text x="{WIDTH - RIGHT + 26}" y="{at}">{escape(name)}</text>'


def _faults(result: Result, x: Scale, bottom: float) -> Iterator[str]:
    for event in result.of(FAULT):
        at = x(event.seconds)
        yield f'<path d="M{at:.1f} {TOP}V{bottom + 22}" stroke="#d0d7de"/>'
        place = f'x="{at:.1f}" y="{bottom + 32}" transform="rotate(-55 {at:.1f} {bottom + 32})"'
        yield f'<text {place} font-size="9" text-anchor="end">{escape(event.name)}</text>'


def _minutes(end: float, x: Scale, bottom: float) -> Iterator[str]:
    every = 60 * max(1, round(end / 60 / 10))
    for second in range(0, int(end) + 1, every):
        place = f'x="{x(second):.1f}" y="{bottom + 14}" text-anchor="middle"'
        yield f'<text {place} fill="{DARK}">{second // 60} min</text>'
