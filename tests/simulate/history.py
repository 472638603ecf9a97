"""Random histories: what happens is drawn from a seed, and the rules are checked all the while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any

from tests.simulate.breaking import WITH_ERRORS
from tests.simulate.happenings import (
    HAPPENINGS,
    Happening,
    job_comes,
    node_comes,
    policy_comes_or_is_edited,
    time_passes,
)
from tests.simulate.hostile import FIRST, HOSTILE, HostileWorld
from tests.simulate.moments import Moments
from tests.simulate.policies import drawn_default_policy
from tests.simulate.violation import require
from tests.simulate.world import Complaints, World

EVENTS = 50
IN_BETWEEN = 0.25
"""How often the next thing happens before the last one has had all its consequences."""
BEGINNING = (*[node_comes] * 4, *[policy_comes_or_is_edited] * 3, *[job_comes] * 4)
REST_EVERY = 10
"""After so many events the world comes to rest."""


def run_history(
    seed: int,
    events: int = EVENTS,
    *,
    told: list[str] | None = None,
    with_errors: bool = False,
    hostile: bool = False,
) -> World:
    """The history of that seed, and the world at its end. What goes wrong is told with all that had happened.

    That is in `told` as well: the beginning, and each event. `with_errors`: the operator has errors of its own.
    `hostile`: one team does what it can to keep GPUs from the others.
    """
    moments, dice = Moments(), Random(seed)
    told = [] if told is None else told
    complaints = Complaints()
    log = logging.getLogger("elastic_operator")
    log.addHandler(complaints)
    try:
        with moments.rule(Random(seed)), noted(seed, told):
            settings = drawn_default_policy(Random(seed))
            world = HostileWorld(moments, dice) if hostile else World(moments, dice, default_policy=settings)
            told += [beginning(world) for beginning in (FIRST if hostile else BEGINNING)]
            with world.raising.rule() if with_errors else nullcontext():
                happenings = HOSTILE if hostile else WITH_ERRORS if with_errors else HAPPENINGS
                return asyncio.run(_live(world, happenings, events, told, complaints))
    finally:
        log.removeHandler(complaints)


@contextmanager
def noted(seed: int, told: list[str]) -> Iterator[None]:
    """What goes wrong is told with all that had happened."""
    try:
        yield
    except Exception as error:
        error.add_note("\n  ".join([f"seed {seed}, after these {len(told)} events:", *told]))
        raise


def drawn(
    world: Any, happenings: Mapping[Happening, int], told: list[str], events: int
) -> Iterator[tuple[Happening, str]]:
    """So many things happen, drawn by their weights; of those that cannot happen now nothing is told."""
    for _ in range(events):
        what = ""
        while not what:
            happening = world.dice.choices(list(happenings), list(happenings.values()))[0]
            what = happening(world)
        told.append(f"{world.moments.passed:.2f} s: {what}")
        yield happening, what


async def _live(
    world: World, happenings: Mapping[Happening, int], events: int, told: list[str], complaints: Complaints
) -> World:
    for happened, (happening, what) in enumerate(drawn(world, happenings, told, events), start=1):
        if happening is time_passes:
            await world.advance(float(what.split()[0]))
        if world.dice.random() < IN_BETWEEN:
            await world.go_on(rounds=world.dice.choice((1, 1, 2, 3)))
        else:
            await world.settle()
        if happened % REST_EVERY == 0:
            await world.come_to_rest()
        require(complaints.first is None, f"the operator complains: {complaints.first and _told(complaints.first)}")
    return world


def _told(record: logging.LogRecord) -> str:
    return logging.Formatter().format(record)
