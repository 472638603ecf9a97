"""Shares requests to tenants' processes fairly: hanging pods of one namespace do not hold up the others."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairSemaphore:
    """At most `most` holders at once, and `most_of_one` of one namespace. The namespaces that wait take turns."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._free, self._most_of_one = most, most_of_one
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By namespace, in the order of their next turns."""

    @asynccontextmanager
    async def turn(self, namespace: str, *, within: float | None = None) -> AsyncIterator[None]:
        """Wait for a turn, and hold it. Raises TimeoutError if no turn comes within these seconds."""
        given = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(given)
        self._give()
        try:
            async with asyncio.timeout(within):
                await given
            yield
        finally:
            if not given.cancelled():  # a turn may also be given in the moment of a cancellation
                self._release(namespace)

    def _release(self, namespace: str) -> None:
        self._held[namespace] -= 1
        if not self._held[namespace]:
            del self._held[namespace]
        self._free += 1
        self._give()

    def _give(self) -> None:
        """Give free turns to the waiters, one namespace after the other."""
        while self._free:
            allowed = (name for name in self._waiting if self._held[name] < self._most_of_one)
            namespace = next(allowed, None)
            if namespace is None:
                return
            waiting = self._waiting.pop(namespace)
            given = waiting.popleft()
            if waiting:
                self._waiting[namespace] = waiting
            if not given.cancelled():
                self._held[namespace] += 1
                self._free -= 1
                given.set_result(None)
