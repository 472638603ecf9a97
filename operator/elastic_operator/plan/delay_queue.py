"""When things are due (controller-runtime: RequeueAfter)."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

MIN_QUEUE = 64
"""A longer queue is made anew when more than half of its times are void."""


class DelayQueue:
    """Due times by name (client-go: a delaying queue). It finds the due names without a look at all others."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._queue: list[tuple[float, str]] = []
        """The times of all names that are not due yet, and void times."""
        self._ready: dict[str, None] = {}

    def set(self, name: str, at: float) -> None:
        """Set the only time at which the name is due; infinity: never."""
        self.drop(name)
        if at == inf:
            return
        self._at[name] = at
        heappush(self._queue, (at, name))
        if len(self._queue) > 2 * len(self._at) + MIN_QUEUE:
            self._queue = sorted((at, name) for name, at in self._at.items() if name not in self._ready)

    def time_of(self, name: str) -> float:
        """The time at which the name is due; infinity for never."""
        return self._at.get(name, inf)

    def due(self, now: float) -> tuple[str, ...]:
        """The due names, the earliest first. They stay due until another time is set."""
        while self._queue and self._queue[0][0] <= now:
            at, name = heappop(self._queue)
            if self._at.get(name) == at:
                self._ready[name] = None
        return tuple(self._ready)

    def next(self) -> float:
        """The earliest time at which something is due; infinity without any."""
        while self._queue and self._at.get(self._queue[0][1]) != self._queue[0][0]:
            heappop(self._queue)
        return min((*map(self.time_of, self._ready), self._queue[0][0] if self._queue else inf))

    def drop(self, name: str) -> None:
        """Forget the name: it is never due."""
        self._at.pop(name, None)
        self._ready.pop(name, None)
