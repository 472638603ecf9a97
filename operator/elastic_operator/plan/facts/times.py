"""Times of statuses, and seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime


def at(seconds: float) -> datetime:
    """Seconds since the epoch as a status time."""
    return datetime.fromtimestamp(int(seconds), UTC)


def seconds(time: datetime | None) -> float:
    """A status time as seconds since the epoch; 0.0 for none."""
    return time.timestamp() if time else 0.0
