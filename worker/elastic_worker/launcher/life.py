"""For how long a training process has done nothing: from its CPU time, its optimizer steps and what it read and wrote.

A process that uses no CPU does nothing. One that uses it may wait all the same: ranks in a collective of NCCL spin. So
after its first steps a process must go on doing them, or read and write as evaluations, compilers and checkpoints do
(106).
"""

from __future__ import annotations

from typing import NamedTuple

BUSY_SHARE = 0.01
"""Of one CPU; a process that uses less does nothing."""
NOTHING_SECONDS = 0.03
"""Of CPU time: what the threads of a process that waits need now and then. The kernel counts in hundredths."""
USUAL_STEPS = 20.0
"""So many times the mean step may one take, however small stallSeconds is."""
ALIVE_BYTES = 4 << 20
ALIVE_SECONDS = 60.0
"""A process that reads and writes that many bytes within this time is at work; logs and heartbeats are less."""


class Seen(NamedTuple):
    """At one look: CPU seconds, bytes read and written, optimizer steps, and monotonic seconds of first and last.

    `moved` is None while nobody looks, as the last step is not long ago.
    """

    cpu: float
    moved: int | None = None
    steps: int = 0
    first: float | None = None
    last: float | None = None


class Life:
    """Of one process, over its looks."""

    def __init__(self) -> None:
        self._cpu: tuple[float, float] | None = None
        self._moved: tuple[int, float] | None = None
        self._moved_at = 0.0

    def idle(self, seen: Seen, now: float) -> float:
        """Seconds for which it has done nothing."""
        return max(self._without_cpu(seen.cpu, now), self._without_progress(seen, now))

    def _without_cpu(self, used: float, now: float) -> float:
        before, since = self._cpu or (used, now)
        is_busy = used - before > NOTHING_SECONDS + BUSY_SHARE * (now - since)
        self._cpu = (used, now) if is_busy else (before, since)
        return now - self._cpu[1]

    def _without_progress(self, seen: Seen, now: float) -> float:
        self._look_at_moved(seen.moved, now)
        if seen.steps < 2 or seen.first is None or seen.last is None:
            return 0.0
        usual = (seen.last - seen.first) / (seen.steps - 1)
        idle = now - max(seen.last, self._moved_at)
        return idle if idle >= USUAL_STEPS * usual else 0.0

    def _look_at_moved(self, moved: int | None, now: float) -> None:
        """At the first look after its last step, a process may have read and written until now."""
        if moved is None:
            self._moved = None
            return
        is_first = self._moved is None
        before, since = self._moved or (moved, now)
        is_alive = moved - before >= ALIVE_BYTES
        if is_alive or is_first:
            self._moved_at = now
        self._moved = (moved, now) if is_alive or now >= since + ALIVE_SECONDS else (before, since)
