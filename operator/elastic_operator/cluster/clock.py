"""The API server's clock, read from the Date headers of its responses and carried on by the local monotonic clock (29).

Decisions compare times that the API server wrote. The local wall clock may be wrong, and may jump. The server's may
jump too: then a new era begins, and a time that was written in an earlier era is moved by the steps since. Otherwise a
step of an hour would end a job's deadline an hour early, or a back-off an hour late.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

STEP_SECONDS = 5.0
"""A response that differs from the estimate by more than this shows a step; a smaller difference moves the estimate."""
SURE_SAMPLES = 3
SURE_SECONDS = 5.0
"""This many responses in a row, over this time, must agree on a step before it counts. Waiting costs little: until then
everything stays on the old clock.
"""
AHEAD_SECONDS = 5.0
"""Clocks of nodes may be this far ahead of the API server's."""
ROUNDING_SECONDS = 2.0
"""A written time has lost up to a second by rounding, and the estimate is as inexact."""
KEPT_SECONDS = 86_400.0
KEPT_ERAS = 16
KEPT_TIMES = 100_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The least and the largest distance of the two clocks by one response."""

    low: float
    high: float

    def nearest(self, offset: float) -> float:
        return min(max(offset, self.low), self.high)

    def allow(self, offset: float) -> bool:
        """Whether `offset` may be right, apart from a difference that is no step."""
        return abs(self.nearest(offset) - offset) <= STEP_SECONDS


@dataclass(slots=True, eq=False)
class _Era:
    """A stretch of monotonic time in which the server's clock did not step.

    `offset` is the server's clock less the monotonic one, `steps` the sum of all steps up to this era. Two eras overlap
    if the server was silent while its clock stepped.
    """

    offset: float
    begin: float = -math.inf
    end: float = math.inf
    steps: int = 0

    def distance(self, written: float, now: float) -> float:
        """Seconds between the era and the moment at which its clock showed `written`; 0 within the era."""
        moment = written - self.offset
        last = min(self.end + ROUNDING_SECONDS, now + AHEAD_SECONDS)
        return max(0.0, self.begin - ROUNDING_SECONDS - moment, moment - last)


@dataclass(slots=True, eq=False)
class _Doubt:
    """Responses in a row that contradict the present era and agree with each other: an era that does not count yet."""

    era: _Era
    since: float
    samples: int = 1


class ServerClock:
    """Epoch seconds on the server's clock, exact to the round trip after a few responses.

    A Date header has whole seconds, and is written between the request and its response. So each response bounds the
    distance of the two clocks from both sides: at least `date - received`, less than `date + 1 - sent`. The estimate is
    moved into these bounds and no further, so many samples close in on the distance.

    A step counts once all responses over some seconds agree on it. If two API servers behind one address have different
    clocks, they contradict each other, and the clock that was heard first goes on.

    Args:
        monotonic: The clock that carries the estimate on.
    """

    def __init__(self, monotonic: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._monotonic = monotonic
        self._eras = [_Era(time.time() - monotonic())]
        """Oldest first. Until the first response, the local wall clock stands in."""
        self._confirmed: float | None = None
        """When the last request was sent whose response agreed with the present era; None before the first response."""
        self._doubt: _Doubt | None = None
        self._resolved: dict[tuple[str, float], _Era] = {}
        self.revision = 0
        """Changes whenever the answer of `current` may change for earlier times."""

    @property
    def stepped(self) -> int:
        """The sum of all steps so far, in seconds."""
        return self._eras[-1].steps

    def time(self) -> float:
        """Now, in epoch seconds."""
        return self.at(self._monotonic())

    def at(self, monotonic: float) -> float:
        """The epoch seconds of a local monotonic time, on the present era's clock."""
        return monotonic + self._eras[-1].offset

    def current(self, written: float, of: str) -> float:
        """What the present era's clock showed when the server's showed `written`; `of` is the uid of the object.

        That is the time itself, unless the clock stepped since. The time belongs to the latest era that it fits. After
        a step back, times of the earlier era come again and fit both, so the era of an object's time never changes once
        it was found to be an earlier one. One error remains: right after a step back by an hour, times that are between
        60 minutes and some seconds less old count as new.
        """
        if len(self._eras) == 1 and self._doubt is None:
            return written
        return written + self.stepped - self._era_of(written, of).steps

    def sample(self, date: str | None, *, sent: float, received: float) -> None:
        """Use one Date header; `sent` and `received` are monotonic times. A missing or unreadable header is ignored."""
        server = _parsed(date)
        if server is None:
            return
        bounds = _Bounds(server - received, server + 1 - sent)
        present = self._eras[-1]
        if self._confirmed is None or bounds.allow(present.offset):
            present.offset = bounds.nearest(present.offset)
            self._confirmed = max(sent, self._confirmed or sent)
            self._dispel()
        else:
            self._contradict(bounds, received)

    def _dispel(self) -> None:
        if self._doubt is not None:
            self._doubt = None
            self.revision += 1

    def _contradict(self, bounds: _Bounds, received: float) -> None:
        doubt = self._doubt
        if doubt is None or not bounds.allow(doubt.era.offset):
            self._doubt = _Doubt(self._next_era(bounds), since=received)
            self.revision += 1
            return
        doubt.samples += 1
        doubt.era.offset = bounds.nearest(doubt.era.offset)
        if doubt.samples >= SURE_SAMPLES and received - doubt.since >= SURE_SECONDS:
            self._believe(doubt, received)

    def _next_era(self, bounds: _Bounds) -> _Era:
        assert self._confirmed is not None, "what was never confirmed is not contradicted"
        present = self._eras[-1]
        offset = bounds.nearest(present.offset)
        return _Era(offset, begin=self._confirmed, steps=present.steps + round(offset - present.offset))

    def _believe(self, doubt: _Doubt, now: float) -> None:
        before, era = self._eras[-1], doubt.era
        before.end = doubt.since
        era.steps = before.steps + round(era.offset - before.offset)
        log.warning("the API server's clock stepped by %+d s", era.steps - before.steps)
        recent = [e for e in self._eras[1 - KEPT_ERAS :] if e.end > now - KEPT_SECONDS]
        recent[0].begin = -math.inf
        self._eras, self._doubt, self._confirmed = [*recent, era], None, now
        self._resolved = {key: e for key, e in self._resolved.items() if e in recent}
        self.revision += 1

    def _era_of(self, written: float, of: str) -> _Era:
        known = self._resolved.get((of, written))
        if known is not None:
            return known
        now = self._monotonic()
        doubted = [self._doubt.era] if self._doubt else []
        era = min([*doubted, *reversed(self._eras)], key=lambda e: e.distance(written, now))
        if era.end < math.inf:
            if len(self._resolved) >= KEPT_TIMES:
                self._resolved.clear()
            self._resolved[of, written] = era
        return era


def _parsed(date: str | None) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        return None
