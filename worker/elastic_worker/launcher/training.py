"""The training's progress in /status, from the last report of a process that uses the library.

A script may report any value, and JSON has no NaN and no infinity. So values that are not finite numbers are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from elastic_worker.protocol.process_reports import Progress

MOST_PARTS = 16
LONGEST_NAME = 32
"""The longest name of a part of the time."""
MOST_COUNTED, MOST_SECONDS, MOST_PERCENT = 2**53, 1e10, 100
"""The largest numbers that readers of /status accept."""


def training_status(progress: Progress) -> dict[str, Any]:
    """The known values of `epoch`, `samplesSeen`, `loss`, `goodput` (its `share`, 0 to 1, and `seconds` by part),
    `progressPercentage` (0 to 100) and `estimatedRemainingSeconds`.
    """
    about = {
        "epoch": _count(progress.epoch),
        "samplesSeen": _count(progress.samples),
        "loss": _number(progress.loss),
        "goodput": _goodput(progress.goodput),
        "progressPercentage": _count(progress.percentage, MOST_PERCENT),
        "estimatedRemainingSeconds": _count(progress.remaining, int(MOST_SECONDS)),
    }
    return {name: value for name, value in about.items() if value is not None}


def _goodput(progress: Any) -> dict[str, Any] | None:
    if not isinstance(progress, Mapping):
        return None
    share = _number(progress.get("share"))
    parts = [part for part in progress if part != "share" and len(part) <= LONGEST_NAME][:MOST_PARTS]
    numbers = {part: _number(progress[part]) for part in parts}
    seconds = {part: value for part, value in numbers.items() if value is not None and 0 <= value <= MOST_SECONDS}
    return None if share is None or not 0 <= share <= 1 else {"share": share, "seconds": seconds}


def _number(value: Any) -> float | None:
    """The value if it is a finite number, else None; an integer too large for a float is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def _count(value: Any, most: int = MOST_COUNTED) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None
