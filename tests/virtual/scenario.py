"""Scenarios as data. Each step has actions, conditions that must become true, and conditions that must never be true.

The seed of a run decides how long each request takes. A failure prints the seed, and a run with that seed repeats the
failure in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_operator.pods.launcher_target import Target
from elastic_operator.settings import Settings
from tests.simulate.server import Body
from tests.simulate.violation import ViolationError, require
from tests.virtual.world import SETTINGS, ProcessWorld, no_answer, run_world

Action = Callable[[ProcessWorld], object]
Condition = Callable[[ProcessWorld], object]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a scenario: its actions, and what follows from them.

    Attributes:
        description: Names the step in failure messages.
        actions: Run one after the other, at the start of the step.
        expect: Conditions that all become true between `not_before_seconds` and `within_seconds` after the actions, and
            stay true for `hold_seconds` more.
        never: Conditions that are false from the actions until the end of the step. They are checked with each change
            of an object.
    """

    description: str
    actions: Sequence[Action] = ()
    expect: Sequence[Condition] = ()
    within_seconds: float = 5.0
    not_before_seconds: float = 0.0
    never: Sequence[Condition] = ()
    hold_seconds: float = 0.0


Scenario = Sequence[Step]


def run_scenario(
    scenario: Scenario, seed: int, *, settings: Settings = SETTINGS, status: Callable[[Target], bytes] = no_answer
) -> ProcessWorld:
    """Run all steps in a new world; returns the world. Raises ViolationError if a step fails."""

    async def run_steps(world: ProcessWorld) -> None:
        for step in scenario:
            await _run_step(world, step)

    return run_world(seed, run_steps, settings=settings, status=status)


async def _run_step(world: ProcessWorld, step: Step) -> None:
    world.begin_step()

    def check_never(*_: Any) -> None:
        for index, condition in enumerate(step.never):
            if condition(world):
                raise ViolationError(f"{step.description}: condition {index + 1} of `never` is true; {world.report()}")

    def on_change(_plural: str, _old: Body | None, _new: Body | None) -> None:
        check_never()

    if step.never:
        world.server.listeners.append(on_change)
    try:
        for action in step.actions:
            action(world)
        await _wait_for_expected(world, step, check_never)
    finally:
        if step.never:
            world.server.listeners.remove(on_change)


async def _wait_for_expected(world: ProcessWorld, step: Step, check_never: Callable[[], None]) -> None:
    def is_as_expected() -> bool:
        check_never()
        return all(condition(world) for condition in step.expect)

    passed = await world.until(step.description, is_as_expected, seconds=step.within_seconds)
    earliest = step.not_before_seconds
    require(passed >= earliest, f"{step.description}: true after {passed:.2f} s, not before {earliest:g} s expected")
    end = world.clock.passed + step.hold_seconds
    while world.clock.passed < end:
        await world.advance(min(0.25, end - world.clock.passed))
        if not is_as_expected():
            raise ViolationError(f"{step.description}: it became true and did not stay true; {world.report()}")
