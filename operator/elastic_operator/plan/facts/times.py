"""Times of statuses, seconds since the epoch, and waits that double."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeVar

Seconds = TypeVar("Seconds", int, float)


def at(seconds: float) -> datetime:
    """Seconds since the epoch as a status time."""
    return datetime.fromtimestamp(int(seconds), UTC)


def seconds(time: datetime | None) -> float:
    """A status time as seconds since the epoch; 0.0 for none."""
    return time.timestamp() if time else 0.0


def doubled(first: Seconds, most: Seconds, times: int) -> Seconds:
    """How long to wait the `times`-th time in a row: `first` seconds, doubled with each time after, `most` at most."""
    return min(first * (1 << min(max(times - 1, 0), 30)), most)
