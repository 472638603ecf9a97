"""Reads epochs, world sizes and pauses from a training job's log. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

# A launcher puts a prefix with the process before each line, if a pod has several processes.
EPOCH = re.compile(r"^(?:\[default0\]:)?\[\d+\] epoch (?P<epoch>\d+) \(rank = (?P<rank>\d+), local_rank = 0\)")
EPOCH_OF_LIBRARY = re.compile(r"^(?:\[default0\]:)?epoch (?P<epoch>\d+) on (?P<size>\d+) process")
GROUP = re.compile(r"Initializing process group with: .*'WORLD_SIZE': '(?P<size>\d+)'")


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch as the first process of a pod reported it; `time` in seconds since the epoch of clocks."""

    time: float
    number: int
    world_size: int


@dataclass(frozen=True, slots=True)
class Pause:
    """A change of the group: training paused for `seconds`, and `repeated` epochs were done again."""

    seconds: float
    before: Epoch
    after: Epoch

    @property
    def repeated(self) -> int:
        """Epochs that were trained twice."""
        return max(0, self.before.number - self.after.number + 1)


@dataclass
class Journal:
    """The epochs of a job across the replacements of its master: lines of a deleted pod are kept."""

    epochs: list[Epoch] = field(default_factory=list)
    _logs: dict[str, str] = field(default_factory=dict)

    def note(self, uid: str, log: str) -> None:
        """Note the log of a pod, as it was just read.

        While a pod is being removed, its kubelet returns nothing, or an error as a line. So the longest log counts.
        """
        self._logs[uid] = max(self._logs.get(uid, ""), log, key=len)
        found = (epoch for log in self._logs.values() for epoch in epochs_of(log.splitlines()))
        self.epochs = sorted(found, key=lambda epoch: epoch.time)


def epochs_of(lines: Iterable[str]) -> list[Epoch]:
    """Epochs from lines as `kubectl logs --timestamps` prints them."""
    found: list[Epoch] = []
    size = 0
    for line in lines:
        stamp, _, text = line.partition(" ")
        if group := GROUP.search(text):
            size = int(group["size"])
        elif epoch := EPOCH.match(text):
            found.append(Epoch(_seconds(stamp), int(epoch["epoch"]), size))
        elif epoch := EPOCH_OF_LIBRARY.match(text):
            found.append(Epoch(_seconds(stamp), int(epoch["epoch"]), int(epoch["size"])))
    return found


def pauses_of(epochs: list[Epoch]) -> list[Pause]:
    """A pause for each change of the world size."""
    return [
        Pause(after.time - before.time, before, after)
        for before, after in pairwise(epochs)
        if before.world_size != after.world_size
    ]


def _seconds(stamp: str) -> float:
    """RFC 3339 with nanoseconds, which datetime does not read."""
    whole, _, rest = stamp.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{rest or 0}")
