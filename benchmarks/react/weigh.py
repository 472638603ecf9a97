"""The use of the machine by the operator's processes at rest."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.live.operators import Operator


@dataclass(frozen=True, slots=True)
class Rest:
    """The use by one operator over some time: share of one core in percent, memory at the end, number of passes."""

    pod: str
    cpu_percent: float
    resident_megabytes: float
    passes: float


def at_rest(operators: list[Operator], *, seconds: float) -> list[Rest]:
    """Measure them for that time."""
    before = [(time.monotonic(), each.cpu_seconds(), each.metric("pass_seconds_count")) for each in operators]
    time.sleep(seconds)
    found = []
    for each, (started, cpu, passes) in zip(operators, before, strict=True):
        percent = 100 * (each.cpu_seconds() - cpu) / (time.monotonic() - started)
        count = each.metric("pass_seconds_count") - passes
        found.append(Rest(each.pod, percent, each.resident_megabytes(), count))
    return found
