"""Accounts for the time of a training process."""

from __future__ import annotations

import time
from typing import Any

PARTS = ("startup", "productive", "lost", "regroup", "checkpoint", "other")
WINDOW = 50
STEADY_STEPS = 20


class Goodput:
    """Seconds by part; each moment is of one part. `productive` are steps that counted, `lost` those that did not."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._since = time.monotonic()
        self._steps: list[float] = []

    def spend(self, part: str) -> float:
        """Add the time since the last call to `part`; returns those seconds."""
        now = time.monotonic()
        spent, self._since = now - self._since, now
        self.seconds[part] += spent
        return spent

    def step_done(self) -> None:
        """Note that a step was committed."""
        self._steps.append(self.spend("productive"))
        if len(self._steps) > WINDOW:
            del self._steps[0]

    @property
    def is_steady(self) -> bool:
        """Whether enough steps were done for a typical duration: the first ones may compile."""
        return len(self._steps) >= STEADY_STEPS

    def median_step(self) -> float:
        """Median of the latest steps in seconds; 0.0 before the first."""
        return sorted(self._steps)[len(self._steps) // 2] if self._steps else 0.0

    def to_status(self) -> dict[str, Any]:
        """The report for the launcher: seconds by part, and the productive share."""
        total = sum(self.seconds.values())
        share = round(self.seconds["productive"] / total, 4) if total else 0.0
        return {"share": share, **{part: round(seconds, 3) for part, seconds in self.seconds.items()}}
