"""Limits the work that tenants may cause the operator: a burst, and then one piece at a time at a fixed rate."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class _Left:
    """The rest of a ration at one moment."""

    left: float
    at: float


class Ration:
    """For each key: `most` at once, and one more every `seconds`.

    Args:
        now: Seconds on a clock that may step; a step back costs nothing.
    """

    def __init__(self, most: int, seconds: float, *, now: Callable[[], float]) -> None:
        self._most, self._seconds, self._now = most, seconds, now
        self._known: dict[Hashable, _Left] = {}
        """By key; a key with a full ration may be missing."""

    def has(self, key: Hashable) -> bool:
        """Whether one is left."""
        return self._renewed(key).left >= 1

    def take(self, key: Hashable, amount: float = 1.0) -> None:
        """Take one that is left; or more, if it has turned out to be worth more: then it takes longer to renew."""
        self._known[key] = ration = self._renewed(key)
        ration.left -= amount

    def forget_the_whole(self) -> None:
        """Forget keys whose rations are full again."""
        for key in [key for key in self._known if self._renewed(key).left >= self._most]:
            del self._known[key]

    def _renewed(self, key: Hashable) -> _Left:
        now = self._now()
        ration = self._known.get(key)
        if ration is None:
            return _Left(self._most, now)
        ration.left = min(self._most, ration.left + max(0.0, now - ration.at) / self._seconds)
        ration.at = now
        return ration
