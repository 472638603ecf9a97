"""What /status shows of how the training goes, from what a process that uses the library last said.

A script may say anything, and JSON has no words for NaN and infinity: what is no finite number is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from elastic_worker.protocol.process_reports import Progress

MOST_PARTS = 16
LONGEST_NAME = 32
"""Of a part, in an account of time."""
MOST_COUNTED, MOST_SECONDS = 2**53, 1e10
"""Readers of /status take no larger number."""


def shown(said: Progress) -> dict[str, Any]:
    """`epoch`, `samplesSeen`, `loss`, and `goodput`: its `share` (0 to 1) and the `seconds` by part; what is known."""
    about = {
        "epoch": _count(said.epoch),
        "samplesSeen": _count(said.samples),
        "loss": _number(said.loss),
        "goodput": _goodput(said.goodput),
    }
    return {name: value for name, value in about.items() if value is not None}


def _goodput(said: Any) -> dict[str, Any] | None:
    if not isinstance(said, Mapping):
        return None
    share = _number(said.get("share"))
    parts = [part for part in said if part != "share" and len(part) <= LONGEST_NAME][:MOST_PARTS]
    numbers = {part: _number(said[part]) for part in parts}
    seconds = {part: value for part, value in numbers.items() if value is not None and 0 <= value <= MOST_SECONDS}
    return None if share is None or not 0 <= share <= 1 else {"share": share, "seconds": seconds}


def _number(value: Any) -> float | None:
    """A finite number; an integer too large for a float is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COUNTED else None
