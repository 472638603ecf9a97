"""An asyncio event loop whose time stands still while anything can run, and jumps to the next timer when nothing can.

While it runs, `time.monotonic()`, CLOCK_BOOTTIME and `time.time()` tell its time to everybody who asks the module, and
what would run in a thread runs on the loop at once: so the same seed gives the same run, and an hour costs what happens
in it. A program that waits for what can never come, or that is busy for ever at one moment, fails at once.

Sockets of one loop may talk to one another over the loopback: time jumps only while nothing is on its way. Whatever is
outside this process knows nothing of this time, and must not be waited for.

`looptime` does the first of these. It leaves `time` and threads to real time, waits for ever where nothing can come,
and turns 42 times before each jump (130 µs of CPU; here 6).
"""

from __future__ import annotations

import asyncio
import random
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

T = TypeVar("T")

_clock_gettime = time.clock_gettime

START = 1_800_000_000.0
"""When every loop begins, in epoch seconds; its own time begins with 0."""
SOCKET_SECONDS = 0.002
"""Real time in which what is on its way over the loopback arrives."""
MOST_TURNS = 20_000
"""Turns of the loop at one moment after which it is taken to go round in circles."""


class StandstillError(Exception):
    """Nothing can happen any more, now or later."""


class _Jumps(selectors.DefaultSelector):
    """Waits for no time: it lets the loop's time jump instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._turns += 1
        if self._turns > MOST_TURNS:
            self._turns = 0
            raise StandstillError(f"something goes round in circles at {self.now:g} s")
        sockets = len(self.get_map()) > 1  # the first is the loop's own, with which it could be woken
        if not sockets and timeout == 0:
            return []
        ready = super().select(SOCKET_SECONDS if sockets and timeout != 0 else 0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise StandstillError(f"everybody waits for somebody else at {self.now:g} s")
        self.now, self._turns = round(self.now + timeout, 9), 0
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with a time of its own."""

    def __init__(self) -> None:
        self._jumps = _Jumps()
        self.wall = START
        """What the wall clock showed when the loop began; another value is a step."""
        self.asleep = 0.0
        """For how many seconds the machine was suspended: only CLOCK_BOOTTIME goes on meanwhile, and the wall clock."""
        super().__init__(self._jumps)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jumps.now

    def keep_busy(self, seconds: float) -> None:
        """Let that much time go by in which nothing else can run: as if the caller had computed for so long."""
        self._jumps.now = round(self._jumps.now + seconds, 9)

    def run_forever(self) -> None:
        """As ever; meanwhile everybody's time is the loop's."""
        with (
            patch.object(time, "monotonic", self.time),
            patch.object(time, "time", lambda: self.wall + self.asleep + self.time()),
            patch.object(time, "clock_gettime", self._clock),
        ):
            super().run_forever()

    def _clock(self, clock: int) -> float:
        return self.time() + self.asleep if clock == time.CLOCK_BOOTTIME else _clock_gettime(clock)

    def run_in_executor(self, _executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Call it on the loop, at its next turn: threads have another time."""
        future: asyncio.Future[T] = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - it is the caller's, as from a thread
                future.set_exception(error)

        self.call_soon(call)
        return future


def run(
    main: Callable[[], Coroutine[Any, Any, T]], *, seed: int = 0, loop: Callable[[], VirtualLoop] = VirtualLoop
) -> T:
    """What `main` comes to on a virtual loop. The module `random` begins with `seed`."""
    with _drawn_from(seed), asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main())


@contextmanager
def _drawn_from(seed: int) -> Iterator[None]:
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)
