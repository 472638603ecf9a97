"""Turns at the API server: who waits for a write, and who goes first."""

from __future__ import annotations

import asyncio

import pytest

from elastic_operator.cluster.slots import Slots


async def one(slots: Slots, name: str, done: list[str], *, urgent: bool = False) -> None:
    async with slots.slot(urgent=urgent):
        await asyncio.sleep(0)
        done.append(name)


async def test_urgent_ones_go_before_all_others_that_wait_and_each_kind_in_order():
    slots, done = Slots(1), []
    names = [("a", False), ("b", False), ("c", True), ("d", False), ("e", True)]
    await asyncio.gather(*(one(slots, name, done, urgent=urgent) for name, urgent in names))
    assert done == ["a", "c", "e", "b", "d"]


async def test_no_more_hold_a_slot_than_there_are():
    slots, held, most = Slots(3), 0, 0

    async def hold() -> None:
        nonlocal held, most
        async with slots.slot(urgent=False):
            held += 1
            most = max(most, held)
            await asyncio.sleep(0)
            held -= 1

    await asyncio.gather(*(hold() for _ in range(20)))
    assert most == 3


@pytest.mark.parametrize("served", [False, True], ids=["while it waits", "when its turn has just come"])
async def test_one_that_is_cancelled_keeps_no_slot(served):
    slots, done = Slots(1), []
    first, gone, last = (asyncio.ensure_future(one(slots, name, done)) for name in ("first", "gone", "last"))
    await asyncio.sleep(0)
    if served:
        await first
    gone.cancel()
    await asyncio.gather(first, gone, last, return_exceptions=True)
    assert done == ["first", "last"]
    await asyncio.wait_for(one(slots, "again", done), 1)
    assert done[-1] == "again"


async def test_one_that_raises_gives_its_slot_back():
    slots, done = Slots(1), []
    with pytest.raises(ValueError, match="no"):
        async with slots.slot(urgent=True):
            raise ValueError("no")
    await asyncio.wait_for(one(slots, "next", done), 1)
    assert done == ["next"]
