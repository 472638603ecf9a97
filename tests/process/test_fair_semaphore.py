"""Slots are shared fairly between namespaces, and none is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from elastic_operator.pods.fair_semaphore import FairSemaphore


class Holders:
    """Tasks that wait for a turn, note it and keep it until they are let go."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self.turns, self.began, self.may_end = FairSemaphore(most, most_of_one), [], asyncio.Semaphore(0)
        self.holding: Counter[str] = Counter()

    async def hold(self, namespace: str) -> None:
        async with self.turns.turn(namespace):
            self.began.append(namespace)
            self.holding[namespace] += 1
            try:
                await self.may_end.acquire()
            finally:
                self.holding[namespace] -= 1


async def rest() -> None:
    """All tasks do what they can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_namespaces_take_turns_and_none_holds_more_than_its_part():
    held = Holders(4, 3)
    tasks = [asyncio.create_task(held.hold(name)) for name in (*"aaaaaaaa", *"bbb", *"c")]
    await rest()
    assert held.began == [*"aaa", "b"]
    for _ in tasks:
        held.may_end.release()
        await rest()
    assert Counter(held.began) == {"a": 8, "b": 3, "c": 1}
    assert held.began.index("c") < 7, "the only one of its namespace waits for one round, not for all of the first"


@pytest.mark.parametrize("seed", range(20))
async def test_slots_come_back_however_their_holders_end(seed: int):
    rng, held, tasks = random.Random(seed), Holders(5, 2), []
    for _ in range(300):
        match rng.randrange(4):
            case 0 | 1:
                tasks.append(asyncio.create_task(held.hold(rng.choice("abcd"))))
            case 2 if tasks:
                rng.choice(tasks).cancel()
            case _:
                held.may_end.release()
        if rng.random() < 0.5:  # else several things happen in one turn of the event loop
            await rest()
            assert held.holding.total() <= 5
            assert max(held.holding.values(), default=0) <= 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    after = Holders(5, 5)
    after.turns = held.turns
    tasks = [asyncio.create_task(after.hold(name)) for name in "abcdefgh"]
    await rest()
    assert after.holding.total() == 5
    for task in tasks:
        task.cancel()
