"""The functions with which tests wait for real events.

A wait runs out if the machine was too slow or if the event never comes; one run cannot tell which. Its error has a
separate type, so that the gate (`tests/kit/retry.py`) can retry such a test once, alone. A failed assertion about a
state is never that error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.05


class WaitRanOutError(AssertionError):
    """The awaited event did not come in time."""


def until(
    what: str,
    look: Callable[[], T],
    *,
    seconds: float,
    poll_seconds: float = POLL_SECONDS,
    report: Callable[[], object] = str,
) -> T:
    """The first true value that `look` returns, called every `poll_seconds`.

    Raises WaitRanOutError with `what` and the text of `report()` after `seconds`.
    """
    end = time.monotonic() + seconds
    while not (found := look()):
        _go_on(what, end=end, seconds=seconds, report=report)
        time.sleep(poll_seconds)
    return found


async def until_async(
    what: str,
    look: Callable[[], T],
    *,
    seconds: float,
    poll_seconds: float = POLL_SECONDS,
    report: Callable[[], object] = str,
) -> T:
    """The same as `until`, while the event loop runs."""
    end = time.monotonic() + seconds
    while not (found := look()):
        _go_on(what, end=end, seconds=seconds, report=report)
        await asyncio.sleep(poll_seconds)
    return found


async def within(seconds: float, awaited: Awaitable[T]) -> T:
    """The result of `awaited`. Raises WaitRanOutError after `seconds`."""
    try:
        return await asyncio.wait_for(awaited, seconds)
    except TimeoutError:
        raise WaitRanOutError(f"waited {seconds:g} s for {awaited} in vain") from None


def _go_on(what: str, *, end: float, seconds: float, report: Callable[[], object]) -> None:
    if time.monotonic() > end:
        raise WaitRanOutError(f"waited {seconds:g} s for {what} in vain; {report()}")
