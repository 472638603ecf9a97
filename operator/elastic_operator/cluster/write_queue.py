"""Limits the number of writes in flight (28), and lowers the limit while the API server is busy (210). Among waiting
writes, new reservations of nodes are first, then deletions, then other writes that deletions wait for, and creations
are last (147).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import IntEnum
from math import inf

from elastic_operator.cluster.errors import ClusterError, TooManyRequests

SLOW_SECONDS = 0.04
SLOW_FACTOR = 4.0
"""An answer is slow if it took longer than `SLOW_SECONDS`, and this many times as long as the fastest ones to such
writes. So a server does not count as busy because an admission webhook delays each pod.
"""
LEAST_IN_FLIGHT = 2
LEAST_BESIDE_DELETIONS = 1
"""The least number of other writes in flight while deletions are (210)."""
_FORGETTING = 1.001
"""The fastest answer counts as slower by this factor after each further answer: 2.7 times after a thousand."""


class Urgency(IntEnum):
    """The urgency of a waiting write: the lowest is first."""

    RESERVE = 0
    """A new reservation of a node for a foreign pod: each pod of a gang needs one before a node is free (214)."""
    DELETE = 1
    BEFORE_DELETE = 2
    """A decision that is written down before pods are deleted."""
    CHANGE = 3
    CREATE = 4


class WriteQueue:
    """At most `count` writes in flight. Waiting writes get their turn by urgency; at equal urgency, in order.

    For writes that delete nothing, and that no deletion waits for, the limit follows the API server's answers, like a
    congestion window (RFC 5681: additive increase, multiplicative decrease): a slow answer halves it, down to
    `LEAST_IN_FLIGHT`, and `limit` fast answers raise it by one.
    """

    def __init__(self, count: int) -> None:
        self._most, self._in_flight = count, 0
        self._limit, self._limited = float(count), 0
        """The limit, and how many of the writes that it holds back are in flight."""
        self._fastest: dict[str, float] = {}
        """By kind of write, the time of the fastest answers in seconds."""
        self._stood_still = 0.0
        """The seconds for which the event loop stood still."""
        self._lowered_at = -inf
        """When (monotonic) the limit was last lowered. Only answers to later writes lower it again."""
        self._moved = asyncio.Event()
        """Set for a moment whenever a write has ended."""
        self._waiting = {urgency: deque[asyncio.Future[None]]() for urgency in Urgency}

    @asynccontextmanager
    async def turn(self, urgency: Urgency, kind: str = "") -> AsyncIterator[None]:
        """A turn for one write, for example of the `kind` "POST pods"."""
        await self._take(urgency)
        began, stood_still = time.monotonic(), self._stood_still
        try:
            yield
            self._adapt(kind, began, stood_still)
        except ClusterError as error:
            self._adapt(kind, began, stood_still, error)
            raise
        finally:
            self._give_back(urgency)

    def note_standstill(self, seconds: float) -> None:
        """Note that the event loop stood still for so long. Answers that came meanwhile seem later by it."""
        self._stood_still += seconds

    @property
    def is_backed_up(self) -> bool:
        """Whether more writes than the present limit wait, creations aside: another change waits for its turn longer
        than for its answer.
        """
        urgent = (len(queue) for urgency, queue in self._waiting.items() if urgency is not Urgency.CREATE)
        return sum(urgent) > self._limit

    async def until_not_backed_up(self) -> None:
        while self.is_backed_up:
            await self._moved.wait()

    async def until_no_creation_waits(self) -> None:
        while self._waiting[Urgency.CREATE]:
            await self._moved.wait()

    def _adapt(self, kind: str, began: float, stood_still: float, error: ClusterError | None = None) -> None:
        """Adapt the limit to one answer. An error that came fast says nothing, unless the server has too many requests.

        `began` (monotonic) and `stood_still` are from when the write began.
        """
        now = time.monotonic()
        took = now - began - (self._stood_still - stood_still)
        slow = took > max(SLOW_SECONDS, SLOW_FACTOR * self._fastest.get(kind, took))
        if slow or isinstance(error, TooManyRequests):
            if began >= self._lowered_at:  # one decrease for all slow answers of this time
                self._limit = max(min(self._most, LEAST_IN_FLIGHT), self._limit / 2)
                self._lowered_at = now
        elif error is None:
            self._limit = min(self._most, self._limit + 1 / self._limit)
        if error is None and stood_still == self._stood_still:  # else it may have taken longer
            self._fastest[kind] = min(took, self._fastest.get(kind, inf) * _FORGETTING)

    def _is_free(self, urgency: Urgency) -> bool:
        """Whether such a write may begin. Beside deletions at a busy server only the least number of other writes is in
        flight.
        """
        if self._in_flight >= self._most:
            return False
        least = LEAST_BESIDE_DELETIONS if self._in_flight > self._limited else LEAST_IN_FLIGHT
        return _is_urgent(urgency) or self._limited < least or self._in_flight < int(self._limit)

    def _begin(self, urgency: Urgency) -> None:
        self._in_flight += 1
        self._limited += not _is_urgent(urgency)

    async def _take(self, urgency: Urgency) -> None:
        if self._is_free(urgency):
            self._begin(urgency)
            return
        turn, queue = asyncio.get_running_loop().create_future(), self._waiting[urgency]
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    queue.remove(turn)
            else:  # the waiter had its turn already
                self._give_back(urgency)
            raise

    def _give_back(self, urgency: Urgency) -> None:
        """Give the turn to the next waiter, and further turns if the limit has risen."""
        self._in_flight -= 1
        self._limited -= not _is_urgent(urgency)
        self._moved.set()
        self._moved.clear()
        for waiting, queue in self._waiting.items():
            while queue and self._is_free(waiting):
                turn = queue.popleft()
                if not turn.done():
                    self._begin(waiting)
                    turn.set_result(None)


def _is_urgent(urgency: Urgency) -> bool:
    return urgency <= Urgency.BEFORE_DELETE
