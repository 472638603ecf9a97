"""Limits the number of writes at once (28). Among waiting writes, deletions are first and creations last (147)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum


class Urgency(IntEnum):
    """The urgency of a waiting write: the lowest is first."""

    DELETE = 0
    CHANGE = 1
    CREATE = 2


class WriteQueue:
    """At most `count` writes at once. Waiting writes get their turn by urgency; at equal urgency, in order."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting = {urgency: deque[asyncio.Future[None]]() for urgency in Urgency}

    @asynccontextmanager
    async def turn(self, urgency: Urgency) -> AsyncIterator[None]:
        """Wait for a turn, and hold it."""
        await self._take(self._waiting[urgency])
        try:
            yield
        finally:
            self._give_back()

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
        """Give the turn to the next waiter. A cancelled waiter leaves its queue by itself."""
        for queue in self._waiting.values():
            for turn in queue:
                if not turn.done():
                    queue.remove(turn)
                    turn.set_result(None)
                    return
        self._free += 1
