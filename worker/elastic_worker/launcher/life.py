"""Computes how long a training process has been idle, from its CPU time, optimizer steps, reads and writes.

A process that uses no CPU is idle. One that uses CPU may be waiting, too: ranks in a collective of NCCL spin. So after
its first steps a process counts as working only while it does further steps, or reads and writes as evaluations,
compilers and checkpoints do (106).
"""

from __future__ import annotations

from typing import NamedTuple

BUSY_SHARE = 0.01
"""Share of one CPU. A process that uses less is idle."""
NOTHING_SECONDS = 0.03
"""CPU time that the threads of a waiting process use occasionally. The kernel counts in hundredths of a second."""
USUAL_STEPS = 20.0
"""A step may take that many times the mean step, however small stallSeconds is."""
ALIVE_BYTES = 4 << 20
ALIVE_SECONDS = 60.0
"""A process that reads and writes ALIVE_BYTES within this time is working. Logs and heartbeats are less."""


class Seen(NamedTuple):
    """The state of a process at one check.

    `cpu` are CPU seconds, `moved` bytes read and written, `steps` optimizer steps, and `first` and `last` the monotonic
    seconds of the first and the last of these. `moved` is None if it was not read, as the last step is recent.
    """

    cpu: float
    moved: int | None = None
    steps: int = 0
    first: float | None = None
    last: float | None = None


class Life:
    """The history of one process, from check to check."""

    def __init__(self) -> None:
        self._cpu: tuple[float, float] | None = None
        self._moved: tuple[int, float] | None = None
        self._moved_at = 0.0

    def idle(self, seen: Seen, now: float) -> float:
        """Add the state at monotonic time `now`. Returns the seconds for which the process has been idle."""
        return max(self._without_cpu(seen.cpu, now), self._without_progress(seen, now))

    def _without_cpu(self, used: float, now: float) -> float:
        used_then, since = self._cpu or (used, now)
        is_busy = used - used_then > NOTHING_SECONDS + BUSY_SHARE * (now - since)
        self._cpu = (used, now) if is_busy else (used_then, since)
        return now - self._cpu[1]

    def _without_progress(self, seen: Seen, now: float) -> float:
        self._look_at_moved(seen.moved, now)
        if seen.steps < 2 or seen.first is None or seen.last is None:
            return 0.0
        usual = (seen.last - seen.first) / (seen.steps - 1)
        idle = now - max(seen.last, self._moved_at)
        return idle if idle >= USUAL_STEPS * usual else 0.0

    def _look_at_moved(self, moved: int | None, now: float) -> None:
        """Note reads and writes. At the first check after the last step, these may have lasted until now."""
        if moved is None:
            self._moved = None
            return
        is_first = self._moved is None
        moved_then, since = self._moved or (moved, now)
        is_alive = moved - moved_then >= ALIVE_BYTES
        if is_alive or is_first:
            self._moved_at = now
        self._moved = (moved, now) if is_alive or now >= since + ALIVE_SECONDS else (moved_then, since)
