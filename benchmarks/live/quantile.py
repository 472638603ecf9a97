"""Quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterable

MILLISECONDS = 1000


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed; NaN without values."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]
