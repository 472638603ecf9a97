"""Evaluates pairs of runs: how much longer a step takes with the library, with an interval."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Run:
    """One training, in seconds: its median step, the fastest tenth of its steps, CPU time of a process per step."""

    step: float
    fast: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs, one right after the other."""

    plain: Run
    library: Run


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio, with its interval from `low` to `high`."""

    value: float
    low: float
    high: float


def steps(pairs: Sequence[Pair]) -> Ratio:
    """The time of a step with the library, divided by that without it."""
    return ratio([pair.library.step / pair.plain.step for pair in pairs])


def fast(pairs: Sequence[Pair]) -> Ratio:
    """The same ratio of the fastest tenth, which other work on the machine disturbs least."""
    return ratio([pair.library.fast / pair.plain.fast for pair in pairs])


def cpu(pairs: Sequence[Pair]) -> Ratio:
    """The same ratio of CPU time."""
    return ratio([pair.library.cpu / pair.plain.cpu for pair in pairs])


def ratio(ratios: Sequence[float]) -> Ratio:
    """The median over all pairs, each pair's own ratio being one observation.

    The interval is the percentile bootstrap's of 95 %: pairs are drawn with replacement, always the same draws.
    """
    draw = random.Random(0)
    medians = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    outside = round((1 - CONFIDENCE) / 2 * RESAMPLES)
    return Ratio(median(ratios), medians[outside], medians[-outside - 1])
