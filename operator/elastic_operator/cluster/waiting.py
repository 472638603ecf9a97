"""Waits with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress


async def wait_with_timeout(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for the event, but no longer than this; None: without a limit."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def wait_while_it_advances(event: asyncio.Event, seconds: float, progress: Callable[[], int]) -> None:
    """Wait for the event, as long as `progress()` differs after each of these times."""
    while not event.is_set():
        before = progress()
        await wait_with_timeout(event, seconds)
        if progress() == before:
            return
