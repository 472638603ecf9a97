"""Turns at the API server: who waits for a write, and who goes first."""

from __future__ import annotations

import asyncio

import pytest

from elastic_operator.cluster.slots import Rank, Slots


async def one(slots: Slots, name: str, done: list[str], *, rank: Rank = Rank.CHANGE) -> None:
    async with slots.slot(rank):
        await asyncio.sleep(0)
        done.append(name)


async def test_deletions_go_first_and_creations_last_and_each_kind_in_order():
    slots, done = Slots(1), []
    create, change, delete = Rank.CREATE, Rank.CHANGE, Rank.DELETE
    names = {"a": create, "b": create, "c": change, "d": delete, "e": create, "f": change, "g": delete}
    await asyncio.gather(*(one(slots, name, done, rank=rank) for name, rank in names.items()))
    assert done == ["a", "d", "g", "c", "f", "b", "e"]


async def test_no_more_hold_a_slot_than_there_are():
    slots, held, most = Slots(3), 0, 0

    async def hold() -> None:
        nonlocal held, most
        async with slots.slot(Rank.CHANGE):
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
        async with slots.slot(Rank.DELETE):
            raise ValueError("no")
    await asyncio.wait_for(one(slots, "next", done), 1)
    assert done == ["next"]
