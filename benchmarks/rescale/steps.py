"""The cost of a change, from the steps that a surviving pod recorded. Times are the machine's monotonic seconds."""

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
    """One step of one process; `step` counts over all epochs, `world` is the number of processes. `process` is unique
    among the processes of all pods.

    If processes change groups in place, `generation` counts the groups, and `tries` how often the process began the
    step until it counted.
    """

    time: float
    process: int
    rank: int
    world: int
    step: int
    generation: int = 0
    tries: int = 1

    @property
    def group(self) -> tuple[int, int]:
        """A key that differs for each group of the pod."""
        return self.process, self.generation


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one change. Seconds and steps.

    `pause` is the longest time without a step, `extra` its part beyond a median step before the change. `loss` is the
    number of steps missing in the time after the decision, `lost` the number of steps done or begun twice, `epochs` the
    number of epochs begun twice. `parts` are the parts of the time by the coordinator, if there is one.
    """

    pause: float
    extra: float
    loss: float
    lost: int
    epochs: int
    parts: dict[str, float]


def read(file: Path) -> list[Step]:
    """All steps in the file, in order of time; the last line may be incomplete."""
    if not file.exists():
        return []
    lines = [line for line in file.read_text().splitlines() if line.endswith("}")]
    return [Step(**json.loads(line)) for line in lines]


def trains(steps: Sequence[Step], *, world: int, since: float) -> bool:
    """Whether the pod steps in a group of that size that was formed after `since`."""
    if not steps or steps[-1].time < since or steps[-1].world != world:
        return False
    first = next(step for step in steps if step.group == steps[-1].group)
    return first.time > since


def cost(
    steps: Sequence[Step], *, decided: float, counted_from: float | None, seconds: float, parts: dict[str, float]
) -> Cost:
    """The cost of a change that was decided then, from the steps until at least `seconds` later."""
    longest = pause(steps, since=decided, counted_from=counted_from)
    return Cost(
        pause=longest,
        extra=max(0.0, longest - interval(steps, until=decided)),
        loss=effective_loss(steps, decided=decided, seconds=seconds),
        lost=lost(steps, since=decided),
        epochs=epochs_repeated(steps, since=decided),
        parts=parts,
    )


def pause(steps: Sequence[Step], *, since: float, counted_from: float | None = None) -> float:
    """The longest gap between two steps, the second of them after `since`; counted from `counted_from` if given."""
    pairs = [(a, b) for a, b in pairwise(steps) if b.time > since]
    before, after = max(pairs, key=lambda pair: pair[1].time - pair[0].time)
    return after.time - (before.time if counted_from is None else counted_from)


def effective_loss(steps: Sequence[Step], *, decided: float, seconds: float) -> float:
    """The steps of the earlier pace in `seconds` after the decision, less the steps that were made."""
    before = [step for step in steps if step.time <= decided]
    during = [step for step in steps if decided < step.time <= decided + seconds]
    progress = (during or before)[-1].step - before[-1].step
    return seconds / interval(steps, until=decided) - progress


def interval(steps: Sequence[Step], *, until: float) -> float:
    """Median seconds from one step to the next, of the last ones until then."""
    before = [step for step in steps if step.time <= until]
    return median(b.time - a.time for a, b in pairwise(before[-40:]))


def lost(steps: Sequence[Step], *, since: float) -> int:
    """How many steps are repeated after `since`, or were begun twice by the same process."""
    after = [step for step in steps if step.time > since]
    return sum(a.step - b.step + 1 for a, b in _returns(steps, since=since)) + sum(step.tries - 1 for step in after)


def epochs_repeated(steps: Sequence[Step], *, since: float) -> int:
    """How many epochs are begun again after `since`."""
    return sum(a.step // EPOCH_STEPS - (b.step - 1) // EPOCH_STEPS for a, b in _returns(steps, since=since))


def _returns(steps: Sequence[Step], *, since: float) -> list[tuple[Step, Step]]:
    """For each time the training went back, the last step before and the first step after."""
    return [(a, b) for a, b in pairwise(steps) if b.time > since and b.step <= a.step]
