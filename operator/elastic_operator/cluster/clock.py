"""The API server's clock: one distance from the local monotonic clock, read from the Date headers of responses (29).

Decisions compare times that the API server wrote with now. The local wall clock may be wrong, and may jump. The
server's may jump too: times that were written before are then compared as they are. By `read/written_times.py`, a step
back makes no wait longer; by `read/first_seen.py`, a step forward makes no pod or node count as lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

STEP_SECONDS = 5.0
"""A response that differs from the estimate by more than this shows a step; a smaller difference moves the estimate."""
SURE_SAMPLES = 3
SURE_SECONDS = 5.0
"""This many responses in a row, over this time, must agree on a step before it counts."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The least and the largest distance of the two clocks, by one response."""

    low: float
    high: float

    def nearest(self, offset: float) -> float:
        return min(max(offset, self.low), self.high)

    def allow(self, offset: float) -> bool:
        """Whether `offset` may be right, apart from a difference that is no step."""
        return abs(self.nearest(offset) - offset) <= STEP_SECONDS


@dataclass(slots=True)
class _SuspectedStep:
    """Responses in a row that contradict the estimate and agree with each other on another distance."""

    offset: float
    since: float
    samples: int = 1


class ServerClock:
    """Epoch seconds on the server's clock, exact to the round trip after a few responses.

    A Date header has whole seconds, and is written between the request and its response. So each response bounds the
    distance of the two clocks from both sides: at least `date - received`, less than `date + 1 - sent`. The estimate is
    moved into these bounds and no further, so many samples close in on the distance.

    A step counts once all responses over some seconds agree on it. If two API servers behind one address have different
    clocks, they contradict each other, and the clock that was heard first stays.

    Args:
        monotonic: The clock that carries the estimate on.
    """

    def __init__(self, monotonic: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._monotonic = monotonic
        self.offset = time.time() - monotonic()
        """The server's clock less the monotonic one. Until the first response, the local wall clock is used instead."""
        self.stepped = 0
        """The sum of all steps so far, in seconds."""
        self._is_heard = False
        self._doubt: _SuspectedStep | None = None

    def time(self) -> float:
        """Now, in epoch seconds."""
        return self._monotonic() + self.offset

    def sample(self, date: str | None, *, sent: float, received: float) -> None:
        """Use one Date header; `sent` and `received` are monotonic times. A missing or unreadable header is ignored."""
        server = _parsed(date)
        if server is None:
            return
        bounds = _Bounds(server - received, server + 1 - sent)
        if not self._is_heard or bounds.allow(self.offset):
            self.offset, self._is_heard, self._doubt = bounds.nearest(self.offset), True, None
        else:
            self._contradict(bounds, received)

    def _contradict(self, bounds: _Bounds, received: float) -> None:
        doubt = self._doubt
        if doubt is None or not bounds.allow(doubt.offset):
            self._doubt = _SuspectedStep(bounds.nearest(self.offset), since=received)
            return
        doubt.samples += 1
        doubt.offset = bounds.nearest(doubt.offset)
        if doubt.samples >= SURE_SAMPLES and received - doubt.since >= SURE_SECONDS:
            step = round(doubt.offset - self.offset)
            log.warning("the API server's clock stepped by=%+ds", step)
            self.offset, self._doubt, self.stepped = doubt.offset, None, self.stepped + step


def _parsed(date: str | None) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        return None
