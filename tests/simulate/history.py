"""Random histories: a seed decides the events, and the checker runs after each of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any

from tests.simulate.breaking import WITH_ERRORS
from tests.simulate.hostile import FIRST, HOSTILE, HostileWorld
from tests.simulate.policies import drawn_default_policy
from tests.simulate.random_events import (
    RANDOM_EVENTS,
    RandomEvent,
    job_comes,
    node_comes,
    policy_comes_or_is_edited,
    time_passes,
)
from tests.simulate.violation import require
from tests.simulate.virtual_clock import VirtualClock
from tests.simulate.world import ErrorLog, World

EVENTS = 50
IN_BETWEEN = 0.25
"""How often the next event comes before the operator has finished its work on the last one."""
BEGINNING = (*[node_comes] * 4, *[policy_comes_or_is_edited] * 3, *[job_comes] * 4)
REST_EVERY = 10
"""After so many events the world comes to rest."""


def run_history(
    seed: int,
    events: int = EVENTS,
    *,
    trace: list[str] | None = None,
    with_errors: bool = False,
    hostile: bool = False,
) -> World:
    """Run the history of that seed; returns the world at its end. An exception has the trace in its notes.

    Args:
        trace: Gets the description of each event, including those of the beginning.
        with_errors: The operator also has internal errors.
        hostile: One team tries to keep GPUs from the others.
    """
    clock, rng = VirtualClock(), Random(seed)
    trace = [] if trace is None else trace
    error_log = ErrorLog()
    log = logging.getLogger("elastic_operator")
    log.addHandler(error_log)
    try:
        with clock.patch_time(Random(seed)), note_trace(seed, trace):
            settings = drawn_default_policy(Random(seed))
            world = HostileWorld(clock, rng) if hostile else World(clock, rng, default_policy=settings)
            trace += [beginning(world) for beginning in (FIRST if hostile else BEGINNING)]
            with world.raising.rule() if with_errors else nullcontext():
                weights = HOSTILE if hostile else WITH_ERRORS if with_errors else RANDOM_EVENTS
                return asyncio.run(_run(world, weights, events, trace, error_log))
    finally:
        log.removeHandler(error_log)


@contextmanager
def note_trace(seed: int, trace: list[str]) -> Iterator[None]:
    """Add the trace to the notes of an exception."""
    try:
        yield
    except Exception as error:
        error.add_note("\n  ".join([f"seed {seed}, after these {len(trace)} events:", *trace]))
        raise


def draw_events(
    world: Any, weights: Mapping[RandomEvent, int], trace: list[str], events: int
) -> Iterator[tuple[RandomEvent, str]]:
    """Draw events by their weights, and apply them. Events that are impossible now do not count."""
    for _ in range(events):
        what = ""
        while not what:
            event = world.rng.choices(list(weights), list(weights.values()))[0]
            what = event(world)
        trace.append(f"{world.clock.passed:.2f} s: {what}")
        yield event, what


async def _run(
    world: World, weights: Mapping[RandomEvent, int], events: int, trace: list[str], error_log: ErrorLog
) -> World:
    for count, (event, what) in enumerate(draw_events(world, weights, trace, events), start=1):
        if event is time_passes:
            await world.advance(float(what.split()[0]))
        if world.rng.random() < IN_BETWEEN:
            await world.go_on(rounds=world.rng.choice((1, 1, 2, 3)))
        else:
            await world.settle()
        if count % REST_EVERY == 0:
            await world.come_to_rest()
        require(error_log.first is None, f"the operator complains: {error_log.first and _format(error_log.first)}")
    return world


def _format(record: logging.LogRecord) -> str:
    return logging.Formatter().format(record)
