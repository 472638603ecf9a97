"""Pods whose deletion hangs, because of a stuck finalizer or a dead kubelet. Their room is not free soon (40).

A pod is overdue a minute after its grace, counted on the monotonic clock from when its deletion was first seen. The end
of the grace in the pod's object is not used, because it is a time of another machine's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

OVERDUE_SECONDS = 60.0
"""A working kubelet has removed the pod long before."""
BUSY_KUBELET_SECONDS = 10.0
"""A busy kubelet has removed it by then."""


class Leaving:
    """When each pod that is being deleted should be gone. `now` is a monotonic clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._due: dict[str, float] = {}
        self._overdue: set[str] = set()

    def see(self, uid: str, grace_seconds: float) -> None:
        """The pod is being deleted. A later deletion may shorten its grace, but never prolong it."""
        if uid not in self._overdue:
            self._due[uid] = min(self._due.get(uid, inf), self._now() + grace_seconds + OVERDUE_SECONDS)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._due.pop(uid, None)
        self._overdue.discard(uid)

    def is_overdue(self, uid: str) -> bool:
        """Whether the pod should have been gone at the last `expire`."""
        return uid in self._overdue

    def is_expected(self, uid: str) -> bool:
        """Whether the pod is leaving and may still go in time."""
        due = self._due.get(uid)
        return due is not None and self._now() < due - OVERDUE_SECONDS + BUSY_KUBELET_SECONDS

    def overdue_within(self, uid: str) -> float:
        """Seconds until the pod is overdue; infinity if it is overdue already, or is not being deleted."""
        return self._due.get(uid, inf) - self._now()

    def expire(self) -> list[str]:
        """Pods that have become overdue since the last call."""
        late = [uid for uid, due in self._due.items() if due <= self._now()]
        for uid in late:
            del self._due[uid]
        self._overdue.update(late)
        return late

    def next_due(self) -> float:
        """When (on the clock) the next pod becomes overdue; infinity if none is leaving."""
        return min(self._due.values(), default=inf)
