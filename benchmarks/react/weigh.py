"""What the operator's processes take of the machine when nothing happens."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.live.operators import Operator


@dataclass(frozen=True, slots=True)
class Rest:
    """What one operator took over some time: share of one core in percent, memory at the end, passes it made."""

    pod: str
    cpu_percent: float
    resident_megabytes: float
    passes: float


def at_rest(operators: list[Operator], *, seconds: float) -> list[Rest]:
    """Watch them for so long."""
    before = [(time.monotonic(), each.cpu_seconds(), each.metric("pass_seconds_count")) for each in operators]
    time.sleep(seconds)
    found = []
    for each, (started, cpu, passes) in zip(operators, before, strict=True):
        percent = 100 * (each.cpu_seconds() - cpu) / (time.monotonic() - started)
        count = each.metric("pass_seconds_count") - passes
        found.append(Rest(each.pod, percent, each.resident_megabytes(), count))
    return found
