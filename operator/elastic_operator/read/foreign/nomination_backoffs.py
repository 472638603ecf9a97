"""Remembers the foreign pods that could not be nominated, until each is tried again. No object shows it: the nominator
writes it, and the reader reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from elastic_operator.attempts import lasts
from elastic_operator.memory import drop_older_half

MAX_BACKOFFS = 10_000
NOMINATION_RETRY_SECONDS = 30.0
"""A pod that could not be nominated is not tried again for this long."""


class PodBackoff(NamedTuple):
    """A pod's back-off: until when (epoch seconds), and why."""

    until: float
    why: str


class NominationBackoffs:
    """The foreign pods in back-off. `now` gives the time (epoch seconds)."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._backoffs: dict[str, PodBackoff] = {}

    def backoff(self, uid: str) -> PodBackoff | None:
        """The back-off of that foreign pod; None if there is none."""
        known = self._backoffs.get(uid)
        if known is not None and not lasts(known.until, NOMINATION_RETRY_SECONDS, self._now()):
            del self._backoffs[uid]
            return None
        return known

    def back_off(self, uid: str, seconds: float, why: str) -> None:
        drop_older_half(self._backoffs, MAX_BACKOFFS)
        self._backoffs[uid] = PodBackoff(self._now() + seconds, why)
