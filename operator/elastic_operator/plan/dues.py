"""When things are due."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

MIN_QUEUE = 64
"""`Dues` clears its queue of times that do not hold any more once it is longer than twice what holds, and this."""


class Dues:
    """When something is due, by name. What is due is found without a look at all others."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._queue: list[tuple[float, str]] = []
        """The times of all that are not ready, and times that do not hold any more."""
        self._ready: dict[str, None] = {}

    def set(self, name: str, at: float) -> None:
        """It is due at that time, and not before; infinity: never."""
        self.drop(name)
        if at == inf:
            return
        self._at[name] = at
        heappush(self._queue, (at, name))
        if len(self._queue) > 2 * len(self._at) + MIN_QUEUE:
            self._queue = sorted((at, name) for name, at in self._at.items() if name not in self._ready)

    def at(self, name: str) -> float:
        """When it is due; infinity for never."""
        return self._at.get(name, inf)

    def due(self, now: float) -> tuple[str, ...]:
        """What is due, the earliest first. It stays due until another time is set."""
        while self._queue and self._queue[0][0] <= now:
            at, name = heappop(self._queue)
            if self._at.get(name) == at:
                self._ready[name] = None
        return tuple(self._ready)

    def next(self) -> float:
        """The earliest time at which something is due; infinity without any."""
        while self._queue and self._at.get(self._queue[0][1]) != self._queue[0][0]:
            heappop(self._queue)
        return min((*map(self.at, self._ready), self._queue[0][0] if self._queue else inf))

    def drop(self, name: str) -> None:
        """It is never due."""
        self._at.pop(name, None)
        self._ready.pop(name, None)
