"""Takes the times: passes over everything, passes after one change, and how the first grows with the cluster."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from statistics import linear_regression, median

from benchmarks.allocate.scenario import Scenario
from benchmarks.allocate.world import World
from elastic_operator.__main__ import GC_THRESHOLDS

PARTS = (0.25, 0.5, 1.0)
"""The parts of the cluster that are measured, for the exponent."""
MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class Figures:
    """Times in milliseconds: full passes by part of the cluster, and passes after one change by the change."""

    full: dict[float, list[float]]
    change: dict[str, list[float]]

    def summary(self) -> dict[str, float]:
        """The figures by which the benchmark is judged."""
        changes = [each for times in self.change.values() for each in times]
        return {
            "full_p50_ms": round(median(self.full[max(self.full)]), 2),
            "change_p50_ms": round(median(changes), 2),
            "exponent": round(exponent({part: median(times) for part, times in self.full.items()}), 2),
        }


def measure(plan: Scenario, *, full: int, changes: int) -> Figures:
    """Measure `full` passes over everything for each part of the cluster, and `changes` passes after one change."""
    gc.set_threshold(*GC_THRESHOLDS)
    times: dict[float, list[float]] = {}
    for part in PARTS:
        world = _settled(plan.scaled(part))
        times[part] = [_full_pass(world) for _ in range(full)]
    after: dict[str, list[float]] = {}
    world.decide()
    for what in islice(world.changes(), changes):
        after.setdefault(what, []).append(_timed(world.decide))
        world.settle()
    gc.unfreeze()
    return Figures(times, after)


def exponent(times: dict[float, float]) -> float:
    """The slope of log(time) over log(size): 1 if a cluster of twice the size takes twice the time."""
    return linear_regression(_logs(times.keys()), _logs(times.values())).slope


def _settled(plan: Scenario) -> World:
    """A cluster at rest, with the operator's settings of the garbage collector."""
    gc.unfreeze()
    world = World(plan)
    world.settle()
    gc.collect()
    gc.freeze()
    return world


def _full_pass(world: World) -> float:
    world.forget()
    return _timed(world.decide)


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * MILLISECONDS


def _logs(values: Iterable[float]) -> list[float]:
    return [math.log(value) for value in values]
