"""What a change cost, from the steps that a surviving pod wrote down. Times are the machine's monotonic seconds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

EPOCH_STEPS = 10


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one process; `step` counts over all epochs, `world` is the number of processes.

    Where processes go from group to group as they are, `generation` counts the groups, and `tries` how often the
    process began the step until it counted.
    """

    time: float
    pid: int
    rank: int
    world: int
    step: int
    generation: int = 0
    tries: int = 1

    @property
    def group(self) -> tuple[int, int]:
        """Another one in each group that the pod was in."""
        return self.pid, self.generation


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one change. Seconds and steps.

    `pause` is the longest time without a step, `extra` what of it is beyond a median step of before. `loss` is how many
    steps were not done in the time after the decision that would have been, `lost` how many were done or begun twice,
    `epochs` how many epochs were begun twice. `parts` are what the coordinator says of the time, where there is one.
    """

    pause: float
    extra: float
    loss: float
    lost: int
    epochs: int
    parts: dict[str, float]


def read(file: Path) -> list[Step]:
    """All steps in the file, in order of time; the last line may be half written."""
    if not file.exists():
        return []
    lines = [line for line in file.read_text().splitlines() if line.endswith("}")]
    return [Step(**json.loads(line)) for line in lines]


def pause(steps: Sequence[Step], *, since: float, counted_from: float | None = None) -> float:
    """The longest gap between two steps, the second of them after `since`; counted not before `counted_from`."""
    pairs = [(a, b) for a, b in pairwise(steps) if b.time > since]
    before, after = max(pairs, key=lambda pair: pair[1].time - pair[0].time)
    return after.time - max(before.time, counted_from or before.time)


def effective_loss(steps: Sequence[Step], *, decided: float, seconds: float) -> float:
    """Steps that the pace of before would have made in `seconds` after the decision, less those that were made."""
    before = [step for step in steps if step.time <= decided]
    during = [step for step in steps if decided < step.time <= decided + seconds]
    progress = max((step.step for step in during), default=before[-1].step) - before[-1].step
    return seconds / interval(steps, until=decided) - progress


def interval(steps: Sequence[Step], *, until: float) -> float:
    """Median seconds from one step to the next, of the last ones until then."""
    before = [step for step in steps if step.time <= until]
    return median(b.time - a.time for a, b in pairwise(before[-40:]))


def lost(steps: Sequence[Step], *, since: float) -> int:
    """How many steps after `since` had been done already, or begun by the same process."""
    done = max(step.step for step in steps if step.time <= since)
    again = 0
    for step in steps:
        if step.time > since:
            again += (step.step <= done) + (step.tries - 1)
            done = max(done, step.step)
    return again


def epochs_repeated(steps: Sequence[Step], *, since: float) -> int:
    """How many epochs were begun again after `since`."""
    begun = {step.step // EPOCH_STEPS for step in steps if step.time <= since}
    again = [s.step // EPOCH_STEPS for s in steps if s.time > since and s.step % EPOCH_STEPS == 0]
    return sum(epoch in begun or again.count(epoch) > 1 for epoch in set(again))
