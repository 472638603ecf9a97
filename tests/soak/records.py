"""What a training's processes wrote down, judged: epochs in order, one group at a time, no step lost without a cause.

Only steps and the times of faults go in. All processes of all pods share the machine's monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

MOST_LATE = 1


class Step(NamedTuple):
    """One step of one process. `group` is the number of the master and, under it, of the generation."""

    time: float
    group: tuple[int, int]
    uid: str
    rank: int
    world: int
    epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that may cost a training the work since its last checkpoint, from when to when."""

    name: str
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Change:
    """A group gave way to the next one. `lost` are the steps of the old one that the new one did again."""

    time: float
    before: tuple[int, int]
    after: tuple[int, int]
    lost: int
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the records of one training say; `wrong` is empty where all is as it must be."""

    epochs: int
    changes: tuple[Change, ...]
    longest_pause_seconds: float
    wrong: tuple[str, ...]

    @property
    def lost(self) -> int:
        """Steps that were done again."""
        return sum(change.lost for change in self.changes)


def step_of(line: dict[str, Any]) -> Step:
    """A line of the script's records."""
    group = (line["master_epoch"], line["generation"])
    return Step(line["time"], group, line["uid"], line["rank"], line["world"], line["epoch"], line["step"])


def judge(steps: Iterable[Step], causes: Sequence[Cause], *, epoch_steps: int, most_pause_seconds: float) -> Verdict:
    """All that must hold of one training. `epoch_steps` are the steps from one checkpoint to the next."""
    ordered = sorted(steps)
    first_rank = [step for step in ordered if step.rank == 0]
    changes = tuple(_changes(first_rank))
    pause = max((after.time - before.time for before, after in pairwise(first_rank)), default=0.0)
    wrong = [*_order(first_rank), *_two_groups(ordered), *_losses(changes, causes, epoch_steps)]
    if pause > most_pause_seconds:
        wrong.append(f"it stood still for {pause:.0f} s")
    return Verdict(len({step.epoch for step in first_rank}), changes, pause, tuple(wrong))


def _order(first_rank: Sequence[Step]) -> Iterator[str]:
    """No step is left out, within a group or from one to the next."""
    if first_rank and (first_rank[0].epoch, first_rank[0].step) != (0, 0):
        yield f"it begins with epoch {first_rank[0].epoch}, step {first_rank[0].step}"
    for before, after in pairwise(first_rank):
        follows = (after.epoch, after.step) in ((before.epoch, before.step + 1), (before.epoch + 1, 0))
        again = after.group != before.group and after.step == 0 and after.epoch <= before.epoch + 1
        if not follows and not again:
            told = f"epoch {before.epoch}, step {before.step} of group {before.group}"
            yield f"after {told} comes epoch {after.epoch}, step {after.step} of group {after.group}"


def _two_groups(ordered: Sequence[Step]) -> Iterator[str]:
    """No process of an older group does a step once a newer one has begun.

    But one: who was frozen in the middle of a step writes it down when it wakes up.
    """
    latest = ordered[0] if ordered else None
    late: Counter[tuple[str, tuple[int, int]]] = Counter()
    for step in ordered:
        assert latest is not None, "there is a step"
        if step.group >= latest.group:
            latest = step if step.group > latest.group else latest
            continue
        late[step.uid, step.group] += 1
        if late[step.uid, step.group] == MOST_LATE + 1:
            after = f"{step.time - latest.time:.2f} s after group {latest.group} had begun"
            yield f"rank {step.rank} of group {step.group} went on, and did a step {after}"


def _changes(first_rank: Sequence[Step]) -> Iterator[Change]:
    done: list[Step] = []
    """Steps by rank 0 that still count."""
    for step in first_rank:
        if done and step.group != done[-1].group:
            last, again = done[-1], (step.epoch, step.step)
            lost = [one for one in done if (one.epoch, one.step) >= again]
            yield Change(step.time, last.group, step.group, len(lost), step.time - last.time)
            del done[len(done) - len(lost) :]
        done.append(step)


def _losses(changes: Sequence[Change], causes: Sequence[Cause], epoch_steps: int) -> Iterator[str]:
    """Steps are lost by a fault only, and by each at most the work since the last checkpoint.

    Where several faults were under way, it was the latest that may still have cost so much.
    """
    spent: Counter[Cause] = Counter()
    for change in changes:
        if not change.lost:
            continue
        about = f"{change.lost} steps were done again from group {change.before} to {change.after}"
        broke = change.time - change.pause_seconds
        able = sorted((c for c in causes if c.begun <= change.time and broke <= c.ended), key=lambda c: -c.begun)
        if not able:
            yield f"{about}, though no fault was under way"
            continue
        cause = next((c for c in able if spent[c] + change.lost <= epoch_steps), able[0])
        spent[cause] += change.lost
        if spent[cause] > epoch_steps:
            yield f"{about}: {cause.name} cost {spent[cause]} steps in all, an epoch has {epoch_steps}"
