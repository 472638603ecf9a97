"""Times of statuses and of their conditions, seconds since the epoch, and waits that double."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import TypeVar

from elastic_api.status import Condition, Truth
from elastic_operator.plan.facts.text import Reason

Seconds = TypeVar("Seconds", int, float)
AHEAD_SECONDS = 5.0
"""Times may be this far ahead of now: they have whole seconds, and leaders measure the clock differently."""
_ROUNDING_SECONDS = 0.001
"""The most by which a sum of times may exceed a whole second by rounding alone."""


def status_time(seconds: float) -> datetime:
    """Seconds since the epoch as a status time."""
    return datetime.fromtimestamp(int(seconds), UTC)


def round_up(seconds: float) -> int:
    return ceil(seconds - _ROUNDING_SECONDS)


def end_of_wait(seconds: float) -> datetime:
    """The status time at which a wait ends, rounded up to a whole second so that no wait is cut short."""
    return status_time(round_up(seconds))


def seconds(time: datetime | None) -> float:
    """A status time as seconds since the epoch; 0.0 for none."""
    return time.timestamp() if time else 0.0


def not_later(written: float, latest: float) -> float:
    """The time, but no later than `latest`. A later time shows that the API server's clock was set back since (29)."""
    return written if written <= latest + AHEAD_SECONDS else latest


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
        """The attempts after one more failure at `now`. The wait is `first` seconds, doubled with each failure, and
        `most` at most.

        `at_least` are the seconds that a server asks for. They count up to `most`, because a gateway may ask for an
        hour. The doubled wait is multiplied by `spread`.
        """
        times = self.times + 1
        return Attempts(times, now + max(doubled(first, most, times) * spread, min(at_least, most)))


NEVER_FAILED = Attempts()


def condition(
    before: Condition | None, kind: str, holds: bool, reason: Reason, generation: int, now: float
) -> Condition:
    """The next condition after `before`, of the same type. Its transition time changes only with its truth."""
    status: Truth = "True" if holds else "False"
    return Condition(
        type=kind,
        status=status,
        reason=reason.code,
        message=reason.message,
        last_transition_time=before.last_transition_time if before and before.status == status else status_time(now),
        observed_generation=generation,
    )
