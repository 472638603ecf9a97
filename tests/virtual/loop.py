"""An event loop in virtual time that several processes share. A frozen process (SIGSTOP) runs nothing; time passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any

from tests.kit.virtual_time import VirtualLoop

OUTSIDE = Context()
"""The place of callbacks that belong to no process: the network, the API server, the machines."""


class Place:
    """The place of one process, which can be frozen."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frozen = False
        self._parked: list[tuple[Callable[[], None], Context]] = []

    def run(self, work: Callable[[], Any]) -> Any:
        """Call `work` at this place, with all callbacks that result from it."""
        context = copy_context()
        context.run(HERE.set, self)
        return context.run(work)

    def park(self, callback: Callable[[], None], context: Context) -> None:
        """Keep the callback until the process is thawed."""
        self._parked.append((callback, context))

    def thaw(self) -> None:
        """Run all kept callbacks in order."""
        self.frozen = False
        parked, self._parked = self._parked, []
        for callback, context in parked:
            asyncio.get_running_loop().call_soon(callback, context=context)


HERE: ContextVar[Place | None] = ContextVar("HERE", default=None)
"""The process to which the current callback belongs."""


class SharedLoop(VirtualLoop):
    """A loop that runs no callback of a frozen process."""

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        """As ever."""
        context = copy_context() if context is None else context
        place = context.get(HERE)
        if place is None:
            return super().call_soon(callback, *args, context=context)
        return self._guarded(super().call_soon, place, callback, args, context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        """As ever."""
        context = copy_context() if context is None else context
        place = context.get(HERE)
        if place is None:
            return super().call_at(when, callback, *args, context=context)
        return self._guarded(partial(super().call_at, when), place, callback, args, context)

    def _guarded(self, schedule: Any, place: Place, callback: Any, args: Any, context: Context) -> Any:
        def run() -> None:
            if handle.cancelled():
                return
            if place.frozen:
                place.park(run, context)
            else:
                callback(*args)

        handle = schedule(run, context=context)
        return handle
