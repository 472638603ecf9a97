"""Limits the work that tenants may cause the operator: a burst, and then one piece at a time at a fixed rate."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class _Tokens:
    left: float
    at: float


class TokenBucket:
    """A token bucket for each key: `burst` tokens at first, and one more every `seconds`, up to the burst.

    Args:
        now: Seconds on a clock that may step; a step back costs nothing.
    """

    def __init__(self, burst: int, seconds: float, *, now: Callable[[], float]) -> None:
        self._burst, self._seconds, self._now = burst, seconds, now
        self._known: dict[Hashable, _Tokens] = {}
        """By key; a key whose bucket is full may be missing."""

    def __len__(self) -> int:
        """How many keys are known; `forget_full` leaves those that have used tokens lately."""
        return len(self._known)

    def has(self, key: Hashable) -> bool:
        """Whether a token is left."""
        return self._renewed(key).left >= 1

    def take(self, key: Hashable, amount: float = 1.0) -> None:
        """Take a token, or more if the work has cost more than one. The bucket then takes longer to fill."""
        self._known[key] = tokens = self._renewed(key)
        tokens.left -= amount

    def forget_full(self) -> None:
        """Forget the keys whose buckets are full again."""
        for key in [key for key in self._known if self._renewed(key).left >= self._burst]:
            del self._known[key]

    def _renewed(self, key: Hashable) -> _Tokens:
        now = self._now()
        tokens = self._known.get(key)
        if tokens is None:
            return _Tokens(self._burst, now)
        tokens.left = min(self._burst, tokens.left + max(0.0, now - tokens.at) / self._seconds)
        tokens.at = now
        return tokens
