"""Which jobs next get a new message on why they are not bigger.

The message depends on all other jobs, and so may read otherwise after any change. Nobody waits for it, and writing all
of them at once would flood the API server: a few jobs get theirs at a time (24).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Set
from math import inf

from elastic_operator.memory import drop_absent

REASON_MESSAGES_SECONDS = 0.5
LIMIT_MESSAGES_AT_ONCE = 10
"""At most this many jobs get a new message every `REASON_MESSAGES_SECONDS`."""
STORM_REASON_MESSAGES_SECONDS = 5.0
"""The same while hundreds of jobs change: their messages are out of date again at once (24, 156)."""


class ReasonMessages:
    """The jobs (uids) whose message may read otherwise now, the longest waiting first."""

    def __init__(self) -> None:
        self._stale: dict[str, None] = {}
        self._at = 0.0

    def later(self, uids: Iterable[str]) -> None:
        """The messages of these jobs may read otherwise."""
        self._stale |= dict.fromkeys(uids)

    def renewed(self, uid: str) -> None:
        """A plan was made for the job, and its status has the new message."""
        self._stale.pop(uid, None)

    def keep_only(self, present: Set[str]) -> None:
        """Forget the jobs that are gone; `present` are the uids of those that are not."""
        drop_absent(present, self._stale)

    def next_due(self) -> float:
        """When (monotonic) the next jobs have their turn; infinity if there are none."""
        return self._at if self._stale else inf

    def take(self, *, storms: bool) -> list[str]:
        """The jobs that have their turn now. `storms`: passes have woken each other for a while."""
        now = time.monotonic()
        if not self._stale or now < self._at:
            return []
        self._at = now + (STORM_REASON_MESSAGES_SECONDS if storms else REASON_MESSAGES_SECONDS)
        taken = list(self._stale)[:LIMIT_MESSAGES_AT_ONCE]
        for uid in taken:
            del self._stale[uid]
        return taken
