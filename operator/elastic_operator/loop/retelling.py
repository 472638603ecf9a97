"""Which jobs get a new word on why they are not bigger, in turn.

The answer depends on all other jobs, and so may read otherwise after any change. Nobody waits for it, and the API
server must not be flooded with it: a few jobs get theirs at a time (24).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Set
from math import inf

from elastic_operator.memory import drop_absent

RETELLING_SECONDS = 0.5
RETELLING_BATCH = 10
"""So many jobs get a new word every so many seconds."""
STORM_RETELLING_SECONDS = 5.0
"""So many seconds while hundreds of jobs change: their sentences are out of date again at once (24, 156)."""


class Retelling:
    """The jobs (uids) whose answer may read otherwise now, the longest waiting first."""

    def __init__(self) -> None:
        self._unsaid: dict[str, None] = {}
        self._at = 0.0

    def later(self, uids: Iterable[str]) -> None:
        """The answers for these jobs may read otherwise."""
        self._unsaid |= dict.fromkeys(uids)

    def said(self, uid: str) -> None:
        """The job has its new word: a plan was made for it."""
        self._unsaid.pop(uid, None)

    def keep_only(self, present: Set[str]) -> None:
        """Forget the jobs that are gone; `present` are the uids of those that are not."""
        drop_absent(present, self._unsaid)

    def next_due(self) -> float:
        """When (monotonic) the next ones have their turn; infinity if there are none."""
        return self._at if self._unsaid else inf

    def take(self, *, storms: bool) -> list[str]:
        """Those that have their turn now. `storms`: passes have woken each other for a while."""
        now = time.monotonic()
        if not self._unsaid or now < self._at:
            return []
        self._at = now + (STORM_RETELLING_SECONDS if storms else RETELLING_SECONDS)
        taken = list(self._unsaid)[:RETELLING_BATCH]
        for uid in taken:
            del self._unsaid[uid]
        return taken
