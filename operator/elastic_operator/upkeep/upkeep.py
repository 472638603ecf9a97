"""Says when a task of `upkeep` works again: after a change, or a while after a failed write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from contextlib import suppress

from elastic_operator.cluster.errors import ClusterError

log = logging.getLogger(__name__)

BETWEEN_SECONDS = 1.0
RETRY_SECONDS = 5.0


class Upkeep:
    """Works at most once a second; failed writes have keys. `what` is what is kept, for the log."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._news = asyncio.Event()
        self._failures: dict[str, str] = {}

    def has_news(self) -> None:
        """Something has changed."""
        self._news.set()

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Work until cancelled. An error of `work` is logged, and the work is tried again after the next change."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS if self._failures else None):
                    await self._news.wait()
            self._news.clear()
            try:
                await work()
            except Exception:
                log.exception("%s cannot be kept; tried again after the next change", self._what)
            await asyncio.sleep(BETWEEN_SECONDS)

    def succeeded(self, key: str) -> None:
        """The write with that key need not be tried again."""
        self._failures.pop(key, None)

    def failed(self, key: str, error: ClusterError) -> str:
        """Have the write tried again. Returns what to log, "" if that is nothing new.

        A write by somebody else and a lost lease are nothing new.
        """
        told, before = str(error) if error.remedy.is_told else "", self._failures.get(key)
        self._failures[key] = told
        return told if told != before else ""

    def keep_only(self, keys: Container[str]) -> None:
        """Forget the failures of all other keys."""
        self._failures = {key: told for key, told in self._failures.items() if key in keys}
