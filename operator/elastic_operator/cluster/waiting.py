"""Waits with a time limit, and for the ends of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any


async def wait_with_timeout(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for the event, but no longer than this; None: without a limit."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def wait_for_first(*waits: Coroutine[Any, Any, object], seconds: float) -> None:
    """Wait until one of these waits has ended, but no longer than this; then cancel the others. Raises its error."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel_and_wait(tasks)


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks, and wait until all of them have ended, however they end. If the caller is cancelled meanwhile,
    it waits no longer, and they are not cancelled a second time, which could interrupt their ends.
    """
    ending = list(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)
    for task in ending:
        if not task.cancelled():
            task.exception()  # it was logged where it happened


async def run_to_completion(work: Coroutine[Any, Any, None]) -> None:
    """Do the work to its end, even if the caller is cancelled meanwhile."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


async def wait_while_it_advances(event: asyncio.Event, seconds: float, progress: Callable[[], int]) -> None:
    """Wait for the event, as long as `progress()` differs after each of these times."""
    while not event.is_set():
        before = progress()
        await wait_with_timeout(event, seconds)
        if progress() == before:
            return
