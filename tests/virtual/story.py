"""Stories as data: what is done, what must come true of it and when, and what must not be true at any moment meanwhile.

A story is lived from a seed, which draws how long each request takes. A red one tells its seed, and is lived again from
it in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_operator.pods.launcher_target import Target
from elastic_operator.settings import Settings
from tests.simulate.server import Body
from tests.simulate.violation import ViolationError, require
from tests.virtual.world import SETTINGS, ProcessWorld, live, says_nothing

Deed = Callable[[ProcessWorld], object]
Fact = Callable[[ProcessWorld], object]


@dataclass(frozen=True, slots=True)
class Row:
    """What is done, and what comes of it: between `at_least` and `within` seconds later all of `comes` is true.

    None of `never` is true from the deeds on until then, and for `stays` seconds more, in which all of `comes` stays
    true.
    """

    what: str
    does: Sequence[Deed] = ()
    comes: Sequence[Fact] = ()
    within: float = 5.0
    at_least: float = 0.0
    never: Sequence[Fact] = ()
    stays: float = 0.0


Story = Sequence[Row]


def tell(
    story: Story, seed: int, *, settings: Settings = SETTINGS, status: Callable[[Target], bytes] = says_nothing
) -> ProcessWorld:
    """Live it; returns the world's end. Raises ViolationError."""

    async def lived(world: ProcessWorld) -> None:
        for row in story:
            await _live(world, row)

    return live(seed, lived, settings=settings, status=status)


async def _live(world: ProcessWorld, row: Row) -> None:
    world.begin_row()

    def hold(*_: Any) -> None:
        for index, fact in enumerate(row.never):
            if fact(world):
                raise ViolationError(f"{row.what}: what is never to be is (the {index + 1}. of it); {world.report()}")

    def changed(_plural: str, _old: Body | None, _new: Body | None) -> None:
        hold()

    if row.never:
        world.server.listeners.append(changed)
    try:
        for deed in row.does:
            deed(world)
        await _come_true(world, row, hold)
    finally:
        if row.never:
            world.server.listeners.remove(changed)


async def _come_true(world: ProcessWorld, row: Row, hold: Callable[[], None]) -> None:
    def look() -> bool:
        hold()
        return all(fact(world) for fact in row.comes)

    took = await world.until(row.what, look, seconds=row.within)
    require(took >= row.at_least, f"{row.what}: after {took:.2f} s already, not before {row.at_least:g} s")
    end = world.moments.passed + row.stays
    while world.moments.passed < end:
        await world.advance(min(0.25, end - world.moments.passed))
        if not look():
            raise ViolationError(f"{row.what}: it came, and did not stay; {world.report()}")
