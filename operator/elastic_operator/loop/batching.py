"""How long the next pass waits: for more changes, if passes wake each other (156), and for queued writes (181, 218)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

STORM_SECONDS = 1.0
"""Passes that have woken each other for this long are a storm: hundreds of jobs start or shrink. A reclaim of a few
GPUs is a chain of five to ten passes, and is over sooner.
"""
STORM_FACTOR = 4.0
MAX_STORM_DELAY_SECONDS = 0.5
"""The longest wait before a pass in a storm, and so before each of the five to ten steps of a reclaim."""
BACKED_UP_SECONDS, BACKED_UP_FACTOR, MAX_BACKED_UP_SECONDS = 1.0, 3.0, 5.0
"""See `longest_backed_up`. An edit, or a lost node, waits for the longest of these times at most."""
LONGEST_FOR_CREATIONS_SECONDS = 0.1
"""While creations wait for their turn, the next pass begins this long after the last one at the latest (218)."""


def longest_backed_up(took: float) -> float:
    """The longest further wait (seconds) after a pass of `took` seconds, while the writes of earlier passes are backed
    up. The writes of the next pass would only join their queue, and nothing is written while a pass runs: the longer
    the passes, the longer the wait.
    """
    return min(max(BACKED_UP_SECONDS, BACKED_UP_FACTOR * took), MAX_BACKED_UP_SECONDS)


@dataclass(slots=True)
class Batching:
    """The delay after each pass; times are monotonic.

    In a storm the next pass waits for four times the duration of the last one. It then decides about all changes so
    far, because a pass costs the same for one change of a job as for ten.
    """

    _calm_at: float = field(default_factory=time.monotonic)
    """The end of the last pass that no other pass followed at once."""
    in_storm: bool = False
    """Whether there was a storm after the last pass."""

    def delay(self, took: float, *, woken: bool, now: float) -> float:
        """Seconds to wait after a pass of `took` seconds; `woken`: the next pass is due already."""
        if not woken:
            self._calm_at = now
        self.in_storm = now - self._calm_at > STORM_SECONDS
        if not self.in_storm:
            return 0.0
        return min(STORM_FACTOR * took, MAX_STORM_DELAY_SECONDS)
