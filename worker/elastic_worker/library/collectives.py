"""Collectives that can be given up: a waiting thread returns as soon as its group is aborted.

Shutting a gloo group's sockets down makes its collectives fail, as a rule. In torch 2.15 one in thirty does not: gloo's
thread waits for a send to a lost peer until the group's own limit of half an hour. So threads wait here for a flag, not
for gloo. gloo sets the flag when the collective has ended, and `give_up` sets it for all.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable

import torch


class GivenUpError(RuntimeError):
    """The group was aborted before the collective ended."""


class Calls:
    """Collectives of one group. Use `wait` for the library's collectives, and `reduce` as DDP's communication hook."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, Callable[[], None]] = {}
        self._numbers = 0
        self._error: BaseException | None = None
        self.unfinished = 0
        """Number of collectives that gloo has not completed."""
        self.given_up = False

    def wait(self, work: Any) -> None:
        """Wait for the collective to end. Raises its error, or GivenUpError if the group was aborted."""
        ended = threading.Event()
        future = work.get_future()
        self._follow(future, ended.set)
        ended.wait()
        if self.given_up:
            raise GivenUpError("the group was aborted")
        future.value()

    def follow(self, work: Any) -> Callable[[], None]:
        """Return a function that waits for a send or receive, for which gloo has no future, and raises as `wait`."""
        ended = threading.Event()
        errors: list[RuntimeError] = []
        number, is_late = self._begin(ended.set)

        def run() -> None:
            try:
                work.wait()
            except RuntimeError as error:
                errors.append(error)
            self._ended(number)

        def wait() -> None:
            ended.wait()
            if self.given_up:
                raise GivenUpError("the group was aborted")
            if errors:
                raise errors[0]

        if is_late:
            ended.set()
        threading.Thread(target=run, name="elastic-message", daemon=True).start()
        return wait

    def reduce(self, group: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Average a bucket of gradients over all ranks. `check` raises a failure after the backward.

        As in DDP's own hook it is a mean (100), so reducing reduced gradients once more leaves them as they are.
        """
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        buffer = bucket.buffer().div_(group.size())
        future = group.allreduce([buffer]).get_future()

        def finish() -> None:
            if future.done() and not self.given_up:
                try:
                    future.value()
                except RuntimeError as error:
                    self._error = error
            done.set_result(buffer)

        self._follow(future, finish)
        return done

    def check(self) -> None:
        """Raise the error of a reduction that failed, or GivenUpError if the group was aborted."""
        if self._error is not None:
            raise self._error
        if self.given_up:
            raise GivenUpError("the group was aborted")

    def give_up(self) -> None:
        """Wake all waiting threads: the group was aborted."""
        with self._lock:
            self.given_up = True
            waiting, self._waiting = self._waiting, {}
        for release in waiting.values():
            release()

    def _follow(self, future: Any, release: Callable[[], None]) -> None:
        """Call `release` once: when the collective has ended, or is given up."""
        number, is_late = self._begin(release)
        future.add_done_callback(lambda _: self._ended(number))
        if is_late:
            release()

    def _begin(self, release: Callable[[], None]) -> tuple[int, bool]:
        """Number of the new collective, and whether the group was aborted already, so that `release` is not called."""
        with self._lock:
            self._numbers += 1
            self.unfinished += 1
            if not self.given_up:
                self._waiting[self._numbers] = release
            return self._numbers, self.given_up

    def _ended(self, number: int) -> None:
        with self._lock:
            self.unfinished -= 1
            release = self._waiting.pop(number, None)
        if release is not None:
            release()


def keep_for_ever(thing: Any) -> None:
    """Never run the object's destructor, not even at exit, as it would wait for a thread that does not end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
