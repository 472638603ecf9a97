"""Finds pods whose deletion hangs, because of a stuck finalizer or a dead kubelet. Their room will not be free soon
(40).

A pod is overdue a minute after its grace has ended. The grace is counted on the monotonic clock, from the first sight
of the deletion; the end of the grace in the pod's object is not used, because another machine's clock wrote it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

OVERDUE_SECONDS = 60.0
"""A pod is overdue this long after its grace. A working kubelet needs far less."""
BUSY_KUBELET_SECONDS = 10.0
"""Even a busy kubelet removes a pod within this time after the pod's grace."""


class TerminatingPods:
    """Knows by when each pod that is being deleted should be removed. `now` is a monotonic clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._due: dict[str, float] = {}
        self._overdue: set[str] = set()

    def deletion_seen(self, uid: str, grace_seconds: float) -> None:
        """Note the pod's deletion. A later deletion may shorten the grace, but never prolong it."""
        if uid not in self._overdue:
            self._due[uid] = min(self._due.get(uid, inf), self._now() + grace_seconds + OVERDUE_SECONDS)

    def forget(self, uid: str) -> None:
        """Forget a removed pod."""
        self._due.pop(uid, None)
        self._overdue.discard(uid)

    def is_overdue(self, uid: str) -> bool:
        """Whether the pod was overdue at the last `expire`."""
        return uid in self._overdue

    def is_terminating_in_time(self, uid: str) -> bool:
        """Whether the pod is being deleted, and at most `BUSY_KUBELET_SECONDS` late."""
        due = self._due.get(uid)
        return due is not None and self._now() < due - OVERDUE_SECONDS + BUSY_KUBELET_SECONDS

    def overdue_within(self, uid: str) -> float:
        """Seconds until the pod is overdue; infinity if it is overdue already, or is not being deleted."""
        return self._due.get(uid, inf) - self._now()

    def expire(self) -> list[str]:
        """The pods that have become overdue since the last call."""
        late = [uid for uid, due in self._due.items() if due <= self._now()]
        for uid in late:
            del self._due[uid]
        self._overdue.update(late)
        return late

    def next_due_monotonic(self) -> float:
        """When (on the clock `now`) the next pod becomes overdue; infinity if no pod is being deleted."""
        return min(self._due.values(), default=inf)
