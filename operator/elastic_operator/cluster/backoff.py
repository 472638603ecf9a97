"""Waits between failed attempts: they double up to a limit, with jitter so that replicas do not all try at once."""

from __future__ import annotations

import random
from dataclasses import dataclass

from elastic_operator.attempts import doubled

LASTING_SECONDS = 60.0
"""If the work lasted this long before it failed, the failure counts as the first of a new row."""


@dataclass(slots=True)
class Backoff:
    """Seconds to wait: `first`, doubled after each failure up to `most`, each within 20 % of that."""

    first: float = 0.5
    most: float = 30.0
    failures: int = 0

    def next(self, *, at_least: float | None = None, worked: float = 0.0) -> float:
        """The wait after one more failure, in seconds. Without its jitter it is at least `at_least`, which the server
        asked for, but never more than `most`.

        `worked`: the seconds that the work lasted before it failed.
        """
        if worked >= LASTING_SECONDS:
            self.reset()
        self.failures += 1
        seconds = doubled(self.first, self.most, self.failures)
        return max(seconds, min(at_least or 0.0, self.most)) * random.uniform(1.0, 1.2)

    def reset(self) -> None:
        """Note a success: the next wait is `first` again."""
        self.failures = 0
