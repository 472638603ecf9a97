"""Runs a task of `upkeep`: after each change, and a while after a failed write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping

from elastic_operator.cluster.errors import AlreadyExists, ClusterError, NotFound
from elastic_operator.cluster.waiting import wait_with_timeout

log = logging.getLogger(__name__)

BETWEEN_SECONDS = 1.0
UPKEEP_RETRY_SECONDS = 5.0

Writes = Mapping[str, Callable[[], Awaitable[None]]]
"""Writes by the name of their object."""


class Upkeep:
    """Carries out the writes of one task, at most once a second. The log calls them `what` of a `kind`, by its name.

    Args:
        due: The writes that are due now.
    """

    def __init__(self, kind: str, what: str, due: Callable[[], Writes]) -> None:
        self._kind, self._what, self._due = kind, what, due
        self._news = asyncio.Event()
        self._failures: dict[str, str] = {}

    def notify(self) -> None:
        """Note a change, so that due writes are looked for soon."""
        self._news.set()

    async def run(self) -> None:
        """Write until cancelled. If the due writes cannot be computed, they wait for the next change."""
        while True:
            await wait_with_timeout(self._news, UPKEEP_RETRY_SECONDS if self._failures else None)
            self._news.clear()
            try:
                for name, write in self._due().items():
                    await self._try(name, write)
            except Exception:
                log.exception("cannot compute %s of each %s; retried after the next change", self._what, self._kind)
            await asyncio.sleep(BETWEEN_SECONDS)

    async def _try(self, name: str, write: Callable[[], Awaitable[None]]) -> None:
        """Write. A failed write is tried again later, and does not keep other writes from being made (88). If the
        object is deleted or exists already, a watch brings the news.
        """
        try:
            await write()
        except (NotFound, AlreadyExists):
            self._failures.pop(name, None)
        except ClusterError as error:
            message, previous = str(error) if error.retry_policy.is_reported else "", self._failures.get(name)
            self._failures[name] = message
            if message and message != previous:
                log.warning("cannot write %s %s=%s reason=%s", self._what, self._kind, name, message)
        except Exception as error:
            if self._failures.get(name) != repr(error):
                log.exception("cannot write %s: an internal error of the operator %s=%s", self._what, self._kind, name)
            self._failures[name] = repr(error)
        else:
            self._failures.pop(name, None)

    def forget_deleted(self, names: Container[str]) -> None:
        """Forget the failures of all other names."""
        self._failures = {name: message for name, message in self._failures.items() if name in names}
