"""How long the next pass waits for more to happen, where passes wake each other (156)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

STORM_SECONDS = 1.0
"""Passes that have woken each other for this long are a storm: hundreds of jobs start, or give way. A reclaim of a
few GPUs, a chain of five to ten passes, is over before.
"""
STORM_FACTOR = 4.0
MAX_STORM_DELAY_SECONDS = 0.5
"""In a storm, each of the five to ten steps of a reclaim waits for no longer than this, however long passes take."""


@dataclass(slots=True)
class Batching:
    """The delay after each pass; times are monotonic.

    In a storm the next pass waits for four times what the last one took. It then decides about all that has happened
    meanwhile, because a pass costs the same for one change of a job as for ten.
    """

    _calm_at: float = field(default_factory=time.monotonic)
    """When a pass last ended that nothing had followed at once."""
    storms: bool = False
    """Whether there was a storm after the last pass."""

    def delay(self, took: float, *, woken: bool, now: float) -> float:
        """Seconds to wait after a pass that took `took`; `woken`: the next one is due already."""
        if not woken:
            self._calm_at = now
        self.storms = now - self._calm_at > STORM_SECONDS
        if not self.storms:
            return 0.0
        return min(STORM_FACTOR * took, MAX_STORM_DELAY_SECONDS)
