"""What is to happen in each minute of a soak, and when: it follows from the seed alone. Pure.

Of each sort one thing happens in each minute. Kinds are dealt from a shuffled deck, so none is left out for long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

FIRST_SECOND, LAST_SECOND = 1.0, 24.0
"""Things begin in this part of a minute; the rest is for undoing them, and for coming to rest."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Something that can happen: of which sort it is, how long it lasts, how often it is in the deck.

    A `costly` one ends a group without notice, and so may cost a training the work since its last checkpoint. While one
    that takes the API server `away` lasts, nobody can edit anything: edits wait.
    """

    sort: str
    name: str
    lasts_seconds: tuple[float, float] = (0.0, 0.0)
    times: int = 1
    costly: bool = False
    away: bool = False


@dataclass(frozen=True, slots=True)
class Deed:
    """It happens at this second of this minute, is undone after `lasts_seconds`, and draws on a seed of its own."""

    minute: int
    second: float
    sort: str
    name: str
    lasts_seconds: float
    seed: int


def make_plan(seed: int, minutes: int, kinds: Sequence[Kind]) -> list[list[Deed]]:
    """For each minute its deeds, in order of time."""
    rng = Random(seed)
    by_sort = {sort: [kind for kind in kinds if kind.sort == sort] for sort in dict.fromkeys(k.sort for k in kinds)}
    decks = {sort: _deal(Random(rng.getrandbits(32)), found) for sort, found in by_sort.items()}
    return [_minute(minute, rng, decks) for minute in range(minutes)]


def _minute(minute: int, rng: Random, decks: Mapping[str, Iterator[Kind]]) -> list[Deed]:
    deeds = []
    for deck in decks.values():
        kind, second = next(deck), rng.uniform(FIRST_SECOND, LAST_SECOND)
        lasts, seed = rng.uniform(*kind.lasts_seconds), rng.getrandbits(32)
        deeds.append(Deed(minute, round(second, 1), kind.sort, kind.name, round(lasts, 1), seed))
    return sorted(deeds, key=lambda deed: deed.second)


def _deal(rng: Random, kinds: Sequence[Kind]) -> Iterator[Kind]:
    """Card by card without end; the deck is shuffled anew when it is used up."""
    deck = [kind for kind in kinds for _ in range(kind.times)]
    while True:
        rng.shuffle(deck)
        yield from deck
