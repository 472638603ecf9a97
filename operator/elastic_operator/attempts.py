"""How a wait before a retry grows, and whether it lasts. `plan.facts.waits` has the times that a job waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

Seconds = TypeVar("Seconds", int, float)
AHEAD_SECONDS = 5.0
"""Times may be this far ahead of now: they have whole seconds, and leaders measure the clock differently."""


def lasts(until: float, longest: float, now: float) -> bool:
    """Whether a wait of at most `longest` seconds still lasts. A longer one has ended: the clock was set back (29)."""
    return now < until <= now + longest + AHEAD_SECONDS


def doubled(first: Seconds, most: Seconds, times: int) -> Seconds:
    """The wait (seconds) after the `times`-th failure in a row: `first`, doubled with each further one up to `most`."""
    return min(first * (1 << min(max(times - 1, 0), 30)), most)


@dataclass(frozen=True, slots=True)
class Attempts:
    """How many `times` in a row something has failed, and the time before which it is not tried again (`until`).

    `until` is in seconds of the caller's clock, epoch or monotonic.
    """

    times: int = 0
    until: float = 0.0

    def failed(self, now: float, first: float, most: float, *, at_least: float = 0.0, spread: float = 1.0) -> Attempts:
        """The attempts after one more failure at `now`. The wait is `first` seconds, doubled each time up to `most`.

        `at_least` are the seconds that a server asks for. They count up to `most`, because a gateway may ask for an
        hour. The doubled wait is multiplied by `spread`.
        """
        times = self.times + 1
        return Attempts(times, now + max(doubled(first, most, times) * spread, min(at_least, most)))


NEVER_FAILED = Attempts()
