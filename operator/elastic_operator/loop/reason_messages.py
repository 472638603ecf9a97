"""Chooses the jobs that next get a new message on why they are not bigger.

The message depends on all other jobs, so any change may change it. It is not urgent, and writing all messages at once
would flood the API server. So only a few jobs at a time get a new message (24).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Set
from math import inf

from elastic_operator.memory import drop_absent

REASON_MESSAGES_SECONDS = 0.5
REASON_MESSAGES_AT_ONCE = 10
"""The most jobs that get a new message every `REASON_MESSAGES_SECONDS`."""
STORM_REASON_MESSAGES_SECONDS = 5.0
"""The seconds between new messages in a storm of changes, when a new message is soon out of date again (24, 156)."""


class ReasonMessages:
    """The jobs (uids) whose message may be out of date, the longest waiting first."""

    def __init__(self) -> None:
        self._stale: dict[str, None] = {}
        self._at = 0.0

    def add(self, uids: Iterable[str]) -> None:
        self._stale |= dict.fromkeys(uids)

    def note_renewed(self, uid: str) -> None:
        """Remove a job that has a new plan: its status has the new message."""
        self._stale.pop(uid, None)

    def forget_deleted(self, present: Set[str]) -> None:
        drop_absent(present, self._stale)

    def next_due_monotonic(self) -> float:
        """When (monotonic) the next jobs are due; infinity if there are none."""
        return self._at if self._stale else inf

    def take(self, *, in_storm: bool) -> list[str]:
        """Take the jobs whose turn it is. `in_storm`: passes have woken each other for a while."""
        now = time.monotonic()
        if not self._stale or now < self._at:
            return []
        self._at = now + (STORM_REASON_MESSAGES_SECONDS if in_storm else REASON_MESSAGES_SECONDS)
        taken = list(self._stale)[:REASON_MESSAGES_AT_ONCE]
        for uid in taken:
            del self._stale[uid]
        return taken
