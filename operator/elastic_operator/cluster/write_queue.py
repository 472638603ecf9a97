"""Limits the writes at once (28); of those that wait, deletions go first, and what creates goes last (147)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum


class Urgency(IntEnum):
    """Which of the writes that wait goes first: the lowest."""

    DELETE = 0
    CHANGE = 1
    CREATE = 2


class WriteQueue:
    """At most `count` writes at once. Those that wait get their turn by urgency, and within one in order."""

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
            else:  # it had its turn already
                self._give_back()
            raise

    def _give_back(self) -> None:
        """Give the turn to the next that waits; a cancelled one leaves its queue by itself."""
        for queue in self._waiting.values():
            for turn in queue:
                if not turn.done():
                    queue.remove(turn)
                    turn.set_result(None)
                    return
        self._free += 1
