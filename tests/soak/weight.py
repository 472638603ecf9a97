"""Whether operators grow: what each process held over time, judged. Pure.

Operators are killed and come again, and one that stood by takes over, so two questions are asked that do not need one
process to live through it all. Does a process grow all the time in a long stretch in which it leads, or stands by (but
for the beginning, in which its caches fill)? And do processes of the second half of the run, with all that has been,
hold more than those of the first half?
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

WARM_UP_SECONDS = 90.0
LONG_SECONDS = 300.0
"""So long, after the beginning, a stretch must be for its growth to be judged."""
MOST_GROWTH_MEGABYTES = 8.0
"""In a stretch. What is remembered for some minutes on purpose (events, deletions) is 3 to 4 of them."""
MOST_MORE_MEGABYTES = 12.0
"""By so much may the typical process of the second half be above that of the first."""
MOST_MORE_FILES = 10
"""Connections are made as they are needed."""


@dataclass(frozen=True, slots=True)
class Weight:
    """What an operator's process held at a time, `seconds` after the run's begin, and whether it led."""

    seconds: float
    process: str
    megabytes: float
    files: int
    leads: bool = False


@dataclass(frozen=True, slots=True)
class Flatness:
    """The figures for the report, and what is wrong with them. `long_lived` are stretches that were judged."""

    processes: int
    long_lived: int
    first_megabytes: float
    last_megabytes: float
    most_megabytes: float
    growth_megabytes: float
    """In the stretch in which a process grew most."""
    first_files: int
    last_files: int
    most_files: int
    wrong: tuple[str, ...]


def judge(weights: Sequence[Weight]) -> Flatness:
    """Of all samples of a run, in order of time."""
    warm = {name: left for name, own in _stretches(weights) if (left := _warm(own))}
    if not warm:
        return Flatness(0, 0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0, ("no operator lived long enough to be weighed",))
    growths = {n: _growth(own) for n, own in warm.items() if own[-1].seconds - own[0].seconds >= LONG_SECONDS}
    early, late = _halves([weight for own in warm.values() for weight in own])
    first, last = _typical(early), _typical(late)
    most = max(weight.megabytes for own in warm.values() for weight in own)
    files = [max((weight.files for weight in half), default=0) for half in (early, late)]
    return Flatness(
        processes=len({weight.process for weight in weights}),
        long_lived=len(growths),
        first_megabytes=first,
        last_megabytes=last,
        most_megabytes=most,
        growth_megabytes=max(growths.values(), default=0.0),
        first_files=files[0],
        last_files=files[1],
        most_files=max(files),
        wrong=tuple(_wrong(growths, first, last, files)),
    )


def _wrong(growths: Mapping[str, float], first: float, last: float, files: Sequence[int]) -> Iterator[str]:
    for stretch, growth in growths.items():
        if growth > MOST_GROWTH_MEGABYTES:
            yield f"{stretch}, it grew by {growth:.1f} MB"
    if last > first + MOST_MORE_MEGABYTES:
        yield f"operators held {first:.0f} MB in the first half of the run, {last:.0f} MB in the second"
    if files[1] > files[0] + MOST_MORE_FILES:
        yield f"operators had up to {files[0]} files open in the first half of the run, {files[1]} in the second"


def _stretches(weights: Sequence[Weight]) -> Iterator[tuple[str, list[Weight]]]:
    """What each process held while it led, or stood by, with words for which and when."""
    for process in dict.fromkeys(weight.process for weight in weights):
        own = [weight for weight in weights if weight.process == process]
        for leads, group in groupby(own, key=lambda weight: weight.leads):
            stretch = list(group)
            role = "led" if leads else "stood by"
            yield f"while operator {process} {role}, from {stretch[0].seconds:.0f} s on", stretch


def _warm(own: Sequence[Weight]) -> list[Weight]:
    return [weight for weight in own if weight.seconds - own[0].seconds >= WARM_UP_SECONDS]


def _growth(own: Sequence[Weight]) -> float:
    """Megabytes over the time it was seen: four times what the quarter with the median growth added.

    What leaks grows in every quarter; reading everything anew after an outage adds some megabytes once.
    """
    begin, end = own[0].seconds, own[-1].seconds
    marks = [begin + (end - begin) * quarter / 4 for quarter in range(5)]
    held = [min(own, key=lambda weight: abs(weight.seconds - mark)).megabytes for mark in marks]
    return 4 * statistics.median(after - before for before, after in pairwise(held))


def _halves(weights: Sequence[Weight]) -> tuple[list[Weight], list[Weight]]:
    middle = (min(w.seconds for w in weights) + max(w.seconds for w in weights)) / 2
    return [w for w in weights if w.seconds <= middle], [w for w in weights if w.seconds > middle]


def _typical(weights: Sequence[Weight]) -> float:
    """The median over processes of the most that each held: the leader counts as much as who stands by."""
    mosts: dict[str, float] = {}
    for weight in weights:
        mosts[weight.process] = max(mosts.get(weight.process, 0.0), weight.megabytes)
    return statistics.median(mosts.values()) if mosts else 0.0
