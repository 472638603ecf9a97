"""Collectives that can be given up: a waiting thread is free as soon as its group is aborted.

Shutting a gloo group's sockets down makes its collectives fail, as a rule. In 2.15 one in thirty does not: a send whose
peer is gone is waited for in gloo's thread until the group's own limit of half an hour. So nobody waits for gloo here,
but for a flag, which gloo sets when the collective has ended, and `give_up` sets for all.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable

import torch


class GivenUpError(RuntimeError):
    """The group was aborted while, or before, this was waited for."""


class Calls:
    """Of one group. Use `wait` for the library's own collectives, `reduce` as DDP's communication hook."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, Callable[[], None]] = {}
        self._numbers = 0
        self._error: BaseException | None = None
        self.unfinished = 0
        """Collectives that gloo has not ended."""
        self.given_up = False

    def wait(self, work: Any) -> None:
        """Until the collective has ended. Raises what it raises; GivenUpError."""
        ended = threading.Event()
        future = work.get_future()
        self._follow(future, ended.set)
        ended.wait()
        if self.given_up:
            raise GivenUpError("the group was aborted")
        future.value()

    def follow(self, work: Any) -> Callable[[], None]:
        """Waits, when called, for a send or a receive, of which gloo makes no future. Raises as `wait` does."""
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
        """The mean over all ranks of a bucket of gradients. A failure is raised by `check`, after the backward.

        A mean, as DDP's own (100): what a backward has reduced stays what it is if a second one reduces it again.
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
        """Raises the error of a reduction that failed; GivenUpError where the group was aborted."""
        if self._error is not None:
            raise self._error
        if self.given_up:
            raise GivenUpError("the group was aborted")

    def give_up(self) -> None:
        """Nobody waits any more."""
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
        """Its number, and whether the group was aborted before, so that nobody will call `release`."""
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
    """Its destructor is never run, not even at the end of the process: it would wait for a thread that does not end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
