"""Failing writes: those of an operator that is about to be replaced, and random errors of the API server."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from typing import TypeVar

from elastic_operator.cluster.errors import ClusterError, Conflict, Fenced, ServerError, TooManyRequests, Unreachable

T = TypeVar("T")
FAILING = 0.3
"""How many of the writes fail while the server falters."""
LONGEST_WAIT = 45.0
"""Seconds after which what failed has been tried again."""


class Faults:
    """What becomes of one operator's writes. `failed_at` is when one failed last.

    `left` is how many more it gets done before another one leads (None: as many as it likes), `faltering` how many more
    may fail by chance.
    """

    def __init__(self, rng: Random, now: Callable[[], float]) -> None:
        self._dice, self._now = rng, now
        self.left: int | None = None
        self.faltering = 0
        self.failed_at = -inf

    @property
    def cut_off(self) -> bool:
        """Whether another one leads, and a write has been refused for that."""
        return self.left is not None and self.left < 0

    def retries(self, now: float) -> bool:
        """Whether something that failed may not have been tried again yet."""
        return now < self.failed_at + LONGEST_WAIT

    def through(self, effect: Callable[[], T], *, of_version: bool = False) -> T:
        """What `effect` returns. Raises what a failing write raises, before it takes effect or after.

        One `of_version` may find that somebody else was faster.
        """
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Fenced("another operator leads")
        if self.faltering <= 0:
            return effect()
        self.faltering -= 1
        if self._dice.random() >= FAILING:
            return effect()
        self.failed_at = self._now()
        error, takes_effect = self._dice.choice(_WAYS if of_version else _WAYS[:-1])
        if takes_effect:
            effect()
        raise error


_WAYS: tuple[tuple[ClusterError, bool], ...] = (
    (TooManyRequests("slow down", status=429, reason="TooManyRequests"), False),
    (ServerError("no quorum", status=500, reason="InternalError"), False),
    (ServerError("no answer in time", status=504, reason="Timeout"), True),
    (Unreachable("the connection was lost"), True),
    (Conflict("the object has been modified", status=409, reason="Conflict"), False),
)
