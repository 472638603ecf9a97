"""Records what the latest changes cost: the time from the cause of a change to the first step after it, in parts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from elastic_worker.coordinator.decision import Decision
from elastic_worker.coordinator.model import Generation

MOST_CHANGES = 20


@dataclass
class Change:
    """One change of the group. `marks` are monotonic seconds: decided, aligned, stopped, formed, started, stepped ...

    `pause` is the time that a survivor measured between its last step before and its first step after. `lost` is how
    many steps are done again. Both are None while they are not known.
    """

    reason: str
    sentence: str
    time: float
    from_: int
    to: int = 0
    generation: int = 0
    marks: dict[str, float] = field(default_factory=dict)
    pause: float | None = None
    lost: int | None = None
    stepped: int = 0

    def parts(self) -> dict[str, float]:
        """Return the seconds from each mark to the next, by the later one's name."""
        names = list(self.marks)
        return {name: round(self.marks[name] - self.marks[before], 4) for before, name in zip(names, names[1:])}

    def to_status(self) -> dict[str, Any]:
        """Return the change as /status shows it."""
        status: dict[str, Any] = {
            "generation": self.generation,
            "time": round(self.time, 3),
            "reason": self.reason,
            "from": self.from_,
            "to": self.to,
        }
        if self.pause is not None:
            status["pauseSeconds"] = round(self.pause, 3)
        if self.lost is not None:
            status["lostSteps"] = self.lost
        return status


class Changes:
    """The latest changes, newest first."""

    def __init__(self) -> None:
        self._all: list[Change] = []

    def note_decision(self, decision: Decision, old_size: int, now: float) -> None:
        """Record that a change of a group of `old_size` pods is decided on, possibly instead of an unfinished one."""
        latest = self.latest
        if latest is not None and not latest.generation:
            latest.reason, latest.sentence = decision.reason, decision.sentence
            latest.marks.setdefault("aligned", now)
            return
        self._add(Change(decision.reason, decision.sentence, time.time(), old_size, marks={"decided": now}))

    def note_formed(self, group: Generation, sentence: str, old_size: int, now: float) -> Change:
        """Record that a group has formed; return its change, the unfinished one or else a new one."""
        change = self.latest
        if change is None or change.generation:
            change = self._add(Change(group.reason, sentence, time.time(), old_size, marks={"decided": now}))
        change.generation, change.to, change.reason = group.number, len(group.pods), group.reason
        change.marks["formed"] = now
        return change

    def mark(self, name: str, now: float) -> None:
        """Record that a part of the change under way is done now."""
        if self.latest is not None:
            self.latest.marks[name] = now

    def _add(self, change: Change) -> Change:
        """Add a change; an unfinished one is merged into it."""
        if self._all and not self._all[0].generation:
            unfinished = self._all.pop(0)
            change.from_, change.marks = unfinished.from_, {**unfinished.marks, **change.marks}
            change.lost = unfinished.lost if change.lost is None else change.lost
        self._all.insert(0, change)
        del self._all[MOST_CHANGES:]
        return change

    def drop_unfinished(self) -> None:
        """Forget a change that was decided on and then not carried out."""
        self._all = [change for change in self._all if change.generation]

    @property
    def latest(self) -> Change | None:
        """Return the newest change, finished or not."""
        return self._all[0] if self._all else None

    def leading_to(self, generation: int) -> Change | None:
        """Return the change that led to that generation."""
        return next((change for change in self._all if change.generation == generation), None)

    def to_status(self) -> list[dict[str, Any]]:
        """Return the changes that led to a group, as /status shows them."""
        return [change.to_status() for change in self._all if change.generation]
