"""Limits the writes at once (28); of those that wait, deletions go first (147)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """At most `count` holders at once. Those that wait get their turn in order, urgent ones before all others."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._urgent, self._others = deque[asyncio.Future[None]](), deque[asyncio.Future[None]]()

    @asynccontextmanager
    async def slot(self, *, urgent: bool) -> AsyncIterator[None]:
        """Hold a slot, as soon as there is one."""
        await self._take(self._urgent if urgent else self._others)
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
        """Give the slot to the next that waits; a cancelled one leaves its queue by itself."""
        for queue in (self._urgent, self._others):
            for turn in queue:
                if not turn.done():
                    queue.remove(turn)
                    turn.set_result(None)
                    return
        self._free += 1
