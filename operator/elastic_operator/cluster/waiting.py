"""Waits with a time limit."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def waited_for(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for the event, but no longer than this; None: without a limit."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
