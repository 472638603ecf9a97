"""Estimates how much of a training is done, and how long the rest takes at the present group's pace.

Until that pace is known, the last group's pace counts, because the operator keeps the first report of a new group for
some seconds.
"""

from __future__ import annotations

import math
from typing import Any


class Remaining:
    """`done` and `total` are of the same kind, such as steps or samples; times are in seconds of one clock."""

    def __init__(self) -> None:
        self._since: tuple[float, float] | None = None
        self._pace: float | None = None

    def entered(self) -> None:
        """Begin another group, with another pace."""
        self._since = None

    def look(self, done: float, total: Any, now: float) -> tuple[int | None, int | None]:
        """The percentage (0 to 100) and the remaining seconds; None for an unknown value."""
        if not _is_amount(total) or done > total:
            return None, None
        if self._since is None or done < self._since[0]:
            self._since = done, now
        done_then, since = self._since
        if done > done_then:
            self._pace = (now - since) / (done - done_then)
        return math.floor(100 * done / total), None if self._pace is None else round((total - done) * self._pace)


def _is_amount(total: Any) -> bool:
    return not isinstance(total, bool) and isinstance(total, (int, float)) and math.isfinite(total) and total > 0
