"""An asyncio event loop whose time stops while anything can run, and jumps to the next timer when nothing can.

While it runs, `time.monotonic()`, CLOCK_BOOTTIME and `time.time()` return the loop's time, and calls for threads run on
the loop at once: so the same seed gives the same run, and an hour costs only its events. A program that waits for an
impossible event, or that is busy for ever at one moment, fails at once.

Sockets of one loop may communicate over the loopback: time jumps only while no data is on its way. Other processes do
not have this time, so tests must not wait for them.

`looptime` does only the first of these: `time` and threads have real time, an impossible wait never ends, and the loop
turns 42 times before each jump (130 µs of CPU; here 6).
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
"""The wall-clock time at which every loop begins, in epoch seconds; the loop's time begins with 0."""
SOCKET_SECONDS = 0.002
"""Real time in which data on its way over the loopback arrives."""
MOST_TURNS = 20_000
"""The number of turns at one moment after which the loop counts as busy for ever."""


class StandstillError(Exception):
    """Nothing can happen any more, now or later."""


class _Jumps(selectors.DefaultSelector):
    """A selector that does not wait: it lets the loop's time jump."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._turns += 1
        if self._turns > MOST_TURNS:
            self._turns = 0
            raise StandstillError(f"something goes round in circles at {self.now:g} s")
        sockets = len(self.get_map()) > 1  # the first one wakes the loop itself
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
    """A loop with virtual time."""

    def __init__(self) -> None:
        self._jumps = _Jumps()
        self.wall = START
        """The wall clock at the loop's beginning; another value is a step."""
        self.asleep = 0.0
        """The seconds for which the machine was suspended: only CLOCK_BOOTTIME and the wall clock advance meanwhile."""
        super().__init__(self._jumps)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jumps.now

    def keep_busy(self, seconds: float) -> None:
        """Let time pass in which nothing else can run, as if the caller had computed."""
        self._jumps.now = round(self._jumps.now + seconds, 9)

    def run_forever(self) -> None:
        """Run the loop; meanwhile the module `time` returns the loop's time."""
        with (
            patch.object(time, "monotonic", self.time),
            patch.object(time, "time", lambda: self.wall + self.asleep + self.time()),
            patch.object(time, "clock_gettime", self._clock),
        ):
            super().run_forever()

    def _clock(self, clock: int) -> float:
        return self.time() + self.asleep if clock == time.CLOCK_BOOTTIME else _clock_gettime(clock)

    def run_in_executor(self, _executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Call the function on the loop at its next turn, because threads have real time."""
        future: asyncio.Future[T] = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - raised in the caller, as from a thread
                future.set_exception(error)

        self.call_soon(call)
        return future


def run(
    main: Callable[[], Coroutine[Any, Any, T]], *, seed: int = 0, loop: Callable[[], VirtualLoop] = VirtualLoop
) -> T:
    """Run `main` on a virtual loop, and return its result. The module `random` begins with `seed`."""
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
