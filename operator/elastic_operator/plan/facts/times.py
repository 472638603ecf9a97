"""Times of statuses and of their conditions, seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil

from elastic_api.status import Condition, Truth
from elastic_operator.attempts import AHEAD_SECONDS
from elastic_operator.plan.facts.text import Reason

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
