"""Chooses the jobs that next get a new message on why they are not bigger.

The message depends on all other jobs, so any change may change it. It is not urgent, and writing all messages at once
would flood the API server. So only a few jobs at a time get a new message (24).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Set
from itertools import islice, takewhile
from math import inf

from elastic_operator.memory import drop_absent

REASON_MESSAGES_SECONDS = 0.5
REASON_MESSAGES_AT_ONCE = 10
"""The most jobs that get a new message every `REASON_MESSAGES_SECONDS`."""
STORM_REASON_MESSAGES_SECONDS = 5.0
"""The seconds between new messages in a storm of changes, when a new message is soon out of date again (24, 156)."""


class ReasonMessages:
    """The jobs whose message may be out of date: it was made from an older allocation than the last one."""

    def __init__(self) -> None:
        self._allocations = 0
        self._made_from: dict[str, int] = {}
        """The number of the allocation from which each job's message was made, by uid, the oldest message first."""
        self._at = 0.0

    def note_allocation(self) -> None:
        """Note a new allocation: all messages may be out of date."""
        self._allocations += 1

    def note_planned(self, uid: str, *, allocated: bool) -> None:
        """Note a job that has a new plan, and so a new message. A job that is not in the allocation has no message."""
        self._made_from.pop(uid, None)
        if allocated:
            self._made_from[uid] = self._allocations

    def forget_deleted(self, present: Set[str]) -> None:
        drop_absent(present, self._made_from)

    def next_due_monotonic(self) -> float:
        """When (monotonic) the next jobs are due; infinity if there are none."""
        return self._at if any(True for _ in self._stale()) else inf

    def _stale(self) -> Iterator[str]:
        stale = takewhile(lambda one: one[1] < self._allocations, self._made_from.items())
        return (uid for uid, _ in stale)

    def take(self, *, in_storm: bool) -> list[str]:
        """Take the jobs whose turn it is. `in_storm`: passes have woken each other for a while."""
        now = time.monotonic()
        if now < self.next_due_monotonic():
            return []
        self._at = now + (STORM_REASON_MESSAGES_SECONDS if in_storm else REASON_MESSAGES_SECONDS)
        taken = list(islice(self._stale(), REASON_MESSAGES_AT_ONCE))
        for uid in taken:
            self.note_planned(uid, allocated=True)
        return taken
