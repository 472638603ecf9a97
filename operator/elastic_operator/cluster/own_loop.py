"""Runs work in a thread with an event loop of its own: neither loop can hold up the other or cancel its tasks."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any


async def run_in_own_loop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `work` to its end in a thread with an event loop of its own. Cancelling this cancels the work, too."""
    begun: concurrent.futures.Future[Callable[[], object]] = concurrent.futures.Future()

    async def cancellable() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "asyncio.run makes one"
        begun.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        await work()

    thread = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(cancellable())))
    try:
        await asyncio.shield(thread)
    except asyncio.CancelledError:
        cancel = await asyncio.wrap_future(begun)
        with suppress(RuntimeError):  # the work has ended meanwhile, and its loop with it
            cancel()
        await asyncio.wait({thread})
        raise
