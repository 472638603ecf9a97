"""Tasks that begin again after an error."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from elastic_operator.cluster.backoff import Backoff
from elastic_operator.cluster.waiting import cancel_and_wait

log = logging.getLogger(__name__)


def start_supervised(what: str, work: Callable[[], Awaitable[None]], ending: AsyncExitStack) -> None:
    """Run the work until `ending`."""
    ending.push_async_callback(cancel_and_wait, [asyncio.create_task(run_with_restarts(what, work))])


async def run_with_restarts(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work, and begin it again after an error. The error is logged here, because nobody awaits the result."""
    backoff = Backoff()
    while True:
        began = time.monotonic()
        try:
            return await work()
        except Exception:
            log.exception("task failed and is restarted task=%s", what)
        await asyncio.sleep(backoff.next(worked=time.monotonic() - began))
