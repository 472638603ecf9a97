"""Limits the number of writes at once (28). Among waiting writes, deletions are first, then the writes that deletions
wait for, and creations are last (147).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum


class Urgency(IntEnum):
    """The urgency of a waiting write: the lowest is first."""

    DELETE = 0
    BEFORE_DELETE = 1
    """A decision that is written down before pods are deleted."""
    CHANGE = 2
    CREATE = 3


class WriteQueue:
    """At most `count` writes at once. Waiting writes get their turn by urgency; at equal urgency, in order."""

    def __init__(self, count: int) -> None:
        self._count = self._free = count
        self._moved = asyncio.Event()
        """Set for a moment whenever a write has ended."""
        self._waiting = {urgency: deque[asyncio.Future[None]]() for urgency in Urgency}

    @asynccontextmanager
    async def turn(self, urgency: Urgency) -> AsyncIterator[None]:
        await self._take(self._waiting[urgency])
        try:
            yield
        finally:
            self._give_back()

    @property
    def is_backed_up(self) -> bool:
        """Whether more deletions and changes wait than may be under way at once: another one waits for its turn longer
        than for its answer.
        """
        urgent = (len(queue) for urgency, queue in self._waiting.items() if urgency is not Urgency.CREATE)
        return sum(urgent) > self._count

    async def until_not_backed_up(self) -> None:
        while self.is_backed_up:
            await self._moved.wait()

    async def _take(self, queue: deque[asyncio.Future[None]]) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                queue.remove(turn)
            else:  # the waiter had its turn already
                self._give_back()
            raise

    def _give_back(self) -> None:
        """Give the turn to the next waiter. A cancelled waiter removes itself from its queue."""
        self._moved.set()
        self._moved.clear()
        for queue in self._waiting.values():
            for turn in queue:
                if not turn.done():
                    queue.remove(turn)
                    turn.set_result(None)
                    return
        self._free += 1
