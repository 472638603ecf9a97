"""Records of a run: waits for guaranteed GPUs, and changes that are undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.policy.training import Training
    from benchmarks.policy.world import Plain, World

FLAP_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Change:
    """A job's last change of size: when, by how much, and the number of external events until then."""

    at: float
    by: int
    outside: int


class Watching:
    """`outside` counts external events: arrivals, ends, losses.

    `waits` are the seconds from a request of a team with unused guarantee until it is met; a job requests its wanted
    size, under every policy. A change of size is `undone` if the next one is in the other direction within ten minutes;
    it is one of the `flaps` if there was no external event between the two.
    """

    def __init__(self) -> None:
        self.outside = 0
        self.waits: list[float] = []
        self.flaps = self.undone = self.changes = 0
        self._since: dict[str, float] = {}
        self._asked: set[str] = set()
        self._recovers: dict[str, tuple[int, float]] = {}
        self._sizes: dict[str, int] = {}
        self._last: dict[str, Change] = {}

    def after(self, world: World) -> None:
        """Record the state after a policy has acted."""
        self._look_at_sizes(world)
        self._look_at_waits(world)

    def close(self, world: World) -> None:
        """End the record at the horizon: open waits end now."""
        self.waits += [world.now - since for since in self._since.values()]

    def lost(self, job: Training) -> None:
        """Note that the job is about to lose pods. Its changes of size do not count until it has as many again."""
        self._recovers[job.trace.name] = len(job.staying), job.at + FLAP_SECONDS

    def _look_at_sizes(self, world: World) -> None:
        for name, job in world.jobs.items():
            size, before = len(job.staying), self._sizes.get(name, 0)
            if size == before:
                continue
            self._sizes[name] = size
            wanted, until = self._recovers.get(name, (0, 0.0))
            if size >= wanted or world.now > until:
                self._recovers.pop(name, None)
            if size <= wanted and world.now <= until:
                continue
            self.changes += 1
            last, now = self._last.get(name), Change(world.now, size - before, self.outside)
            self._last[name] = now
            if last is not None and last.by * now.by < 0 and now.at - last.at <= FLAP_SECONDS:
                self.undone += 1
                self.flaps += last.outside == now.outside
        for name in self._sizes.keys() - world.jobs.keys():
            del self._sizes[name]
            self._last.pop(name, None)

    def _look_at_waits(self, world: World) -> None:
        """Record waits, in the order in which a team's own jobs are served, within its guarantee."""
        used = world.used.copy()
        jobs = sorted(world.jobs.values(), key=lambda job: (-job.trace.priority, job.trace.arrives))
        owed: set[str] = set()
        everybody: list[Training | Plain] = [*jobs, *world.plain.values()]
        for one in everybody:
            name, team, missing = one.trace.name, one.trace.team, one.missing
            if used[team] + missing > world.guaranteed[team]:
                continue
            used[team] += missing
            if missing:
                owed.add(name)
                self._since.setdefault(name, world.now)
            elif name not in self._asked:
                self.waits += [] if name in self._since else [0.0]
            self._asked.add(name)
        for name in self._since.keys() - owed:
            self.waits.append(world.now - self._since.pop(name))
