"""Handles signals that ask a command to end. Its coroutine is cancelled, as by asyncio at Ctrl-C, and can clean up.

A handler that raises could do so between any two lines of the event loop. A task whose turn was lost never ends.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from elastic_client.exits import Code

T = TypeVar("T")

SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)]
"""The signals that end a command; an ignored one stays ignored, as under `nohup`."""

_cancel: Callable[[], None] | None = None
"""Cancels the coroutine of `run`; None if none runs, or it is cancelled already."""


@contextmanager
def handled() -> Iterator[None]:
    """Within this context, each of SIGNALS ends the process with Code.STOPPED, after its coroutine if one runs."""
    handlers = {
        number: signal.signal(number, _stop) for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine as asyncio.run does, and return its result.

    Raises SystemExit with Code.STOPPED if a handled signal has cancelled it.
    """
    stopped = False

    async def cancellable() -> T:
        global _cancel
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def cancel() -> None:
            nonlocal stopped
            stopped = True
            task.cancel()
            loop.call_soon_threadsafe(lambda: None)  # wakes the loop, which may wait for its next event

        _cancel = cancel
        try:
            return await work
        finally:
            _cancel = None

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        if stopped:
            sys.exit(Code.STOPPED)
        raise


def _stop(_number: int, _frame: FrameType | None) -> None:
    """Cancel the coroutine, or end at once: the second signal does not wait for the clean-up."""
    global _cancel
    if _cancel is None:
        sys.exit(Code.STOPPED)
    cancel, _cancel = _cancel, None
    cancel()
