"""Everything that deeds happen to, and what they are: functions that do, tell what they did, and later undo it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias, TypeVar

from tests.soak.site import Site
from tests.soak.tenant import Tenant
from tests.soak.trainings import RealTraining
from tests.soak.world import SoakWorld

T = TypeVar("T")


@dataclass(slots=True)
class Stage:
    """A soak's cluster, its fake half, the hostile team, and the trainings by name."""

    site: Site
    world: SoakWorld
    tenant: Tenant
    trainings: dict[str, RealTraining] = field(default_factory=dict)


Deeds: TypeAlias = Callable[[Stage, Random], Iterator[str]]
"""Does something, yields what it was in words ("" where it cannot be done now), and undoes it when it goes on."""


def for_a_while(
    choose: Callable[[Stage, Random], T],
    told: Callable[[T], str],
    harm: Callable[[T], object],
    mend: Callable[[T], object],
    then: Callable[[Stage, T], object],
) -> Deeds:
    """What is chosen is harmed, and mended later; `then` waits for what comes of that."""

    def deed(stage: Stage, rng: Random) -> Iterator[str]:
        found = choose(stage, rng)
        harm(found)
        try:
            yield told(found)
        finally:
            mend(found)
        then(stage, found)

    return deed
