"""Limits the number of writes in flight (28), and lowers the limit while the API server is busy (210). Among waiting
writes, deletions are first, then the writes that deletions wait for, and creations are last (147).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum
from math import inf

SLOW_SECONDS = 0.04
SLOW_FACTOR = 4.0
"""An answer is slow if it took longer than `SLOW_SECONDS`, and this many times as long as the fastest ones. So a server
whose every answer is late, for example because of an admission webhook, does not count as busy.
"""
LEAST_IN_FLIGHT = 2
_FORGETTING = 1.001
"""The fastest answer counts as slower by this factor after each further answer: 2.7 times after a thousand."""


class Urgency(IntEnum):
    """The urgency of a waiting write: the lowest is first."""

    DELETE = 0
    BEFORE_DELETE = 1
    """A decision that is written down before pods are deleted."""
    CHANGE = 2
    CREATE = 3


class WriteQueue:
    """At most `count` writes in flight. Waiting writes get their turn by urgency; at equal urgency, in order.

    For writes that delete nothing, and that no deletion waits for, the limit follows the API server's answers, like a
    congestion window (RFC 5681: additive increase, multiplicative decrease): a slow answer halves it, down to
    `LEAST_IN_FLIGHT`, and `limit` fast answers raise it by one.
    """

    def __init__(self, count: int) -> None:
        self._most, self._limit, self._in_flight = count, float(count), 0
        self._fastest, self._lowered_at = inf, -inf
        """The time of the fastest answers in seconds, and when (monotonic) the limit was last lowered."""
        self._moved = asyncio.Event()
        """Set for a moment whenever a write has ended."""
        self._waiting = {urgency: deque[asyncio.Future[None]]() for urgency in Urgency}

    @asynccontextmanager
    async def turn(self, urgency: Urgency) -> AsyncIterator[None]:
        await self._take(urgency)
        began = time.monotonic()
        try:
            yield
        finally:
            self._adapt(began, time.monotonic())
            self._give_back()

    @property
    def is_backed_up(self) -> bool:
        """Whether more deletions and changes wait than changes may be in flight: another change waits for its turn
        longer than for its answer.
        """
        urgent = (len(queue) for urgency, queue in self._waiting.items() if urgency is not Urgency.CREATE)
        return sum(urgent) > self._limit

    async def until_not_backed_up(self) -> None:
        while self.is_backed_up:
            await self._moved.wait()

    def _adapt(self, began: float, ended: float) -> None:
        """Adapt the limit to one answer. Slow answers to requests from before the last decrease lower it no further."""
        took = ended - began
        self._fastest = min(took, self._fastest * _FORGETTING)
        if took <= max(SLOW_SECONDS, SLOW_FACTOR * self._fastest):
            self._limit = min(self._most, self._limit + 1 / self._limit)
        elif began >= self._lowered_at:
            self._limit = max(min(self._most, LEAST_IN_FLIGHT), self._limit / 2)
            self._lowered_at = ended

    def _limit_of(self, urgency: Urgency) -> int:
        return self._most if urgency <= Urgency.BEFORE_DELETE else int(self._limit)

    async def _take(self, urgency: Urgency) -> None:
        queue = self._waiting[urgency]
        if self._in_flight < self._limit_of(urgency):
            self._in_flight += 1
            return
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the waiter had its turn already
                self._give_back()
            raise

    def _give_back(self) -> None:
        """Give the turn to the next waiter, and further turns if the limit has risen. Drop cancelled waiters."""
        self._in_flight -= 1
        self._moved.set()
        self._moved.clear()
        for urgency, queue in self._waiting.items():
            while queue and self._in_flight < self._limit_of(urgency):
                turn = queue.popleft()
                if not turn.done():
                    self._in_flight += 1
                    turn.set_result(None)
