"""The API server's clock, read from the Date headers of its responses and carried on by the local monotonic clock.

Ages of pods and time-outs compare times that the API server wrote; the local wall clock may be off, and may jump.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime


class ServerClock:
    """Epoch seconds on the server's clock, right to the round trip after a few responses.

    A Date header has whole seconds, and is written between the request and its response. So each response bounds the
    distance of the two clocks from both sides: at least `date - received`, less than `date + 1 - sent`. The estimate is
    moved into these bounds and no further: many samples close in on the distance, and a step of the server's clock, in
    either direction, is followed at once.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()
        """Until the first response the local wall clock has to do."""

    def sample(self, date: str | None, *, sent: float, received: float) -> None:
        """Take in one Date header; `sent` and `received` are monotonic times. A missing or odd header says nothing."""
        server = _parsed(date)
        if server is not None:
            self._offset = min(max(self._offset, server - received), server + 1 - sent)

    def time(self) -> float:
        """Now, in epoch seconds."""
        return time.monotonic() + self._offset

    def at(self, monotonic: float) -> float:
        """The epoch seconds of a local monotonic time."""
        return monotonic + self._offset


def _parsed(date: str | None) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        return None
