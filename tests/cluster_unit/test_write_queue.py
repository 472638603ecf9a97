"""Turns at the API server: who waits for a write, and who goes first."""

from __future__ import annotations

import asyncio

import pytest

from elastic_operator.cluster.write_queue import Urgency, WriteQueue


async def one(queue: WriteQueue, name: str, done: list[str], *, urgency: Urgency = Urgency.CHANGE) -> None:
    async with queue.turn(urgency):
        await asyncio.sleep(0)
        done.append(name)


async def test_deletions_go_first_and_creations_last_and_each_kind_in_order():
    queue, done = WriteQueue(1), []
    create, change, delete = Urgency.CREATE, Urgency.CHANGE, Urgency.DELETE
    names = {"a": create, "b": create, "c": change, "d": delete, "e": create, "f": change, "g": delete}
    await asyncio.gather(*(one(queue, name, done, urgency=urgency) for name, urgency in names.items()))
    assert done == ["a", "d", "g", "c", "f", "b", "e"]


async def test_no_more_write_at_once_than_may():
    queue, held, most = WriteQueue(3), 0, 0

    async def hold() -> None:
        nonlocal held, most
        async with queue.turn(Urgency.CHANGE):
            held += 1
            most = max(most, held)
            await asyncio.sleep(0)
            held -= 1

    await asyncio.gather(*(hold() for _ in range(20)))
    assert most == 3


@pytest.mark.parametrize("served", [False, True], ids=["while it waits", "when its turn has just come"])
async def test_one_that_is_cancelled_keeps_no_turn(served):
    queue, done = WriteQueue(1), []
    first, gone, last = (asyncio.ensure_future(one(queue, name, done)) for name in ("first", "gone", "last"))
    await asyncio.sleep(0)
    if served:
        await first
    gone.cancel()
    await asyncio.gather(first, gone, last, return_exceptions=True)
    assert done == ["first", "last"]
    await asyncio.wait_for(one(queue, "again", done), 1)
    assert done[-1] == "again"


async def test_one_that_raises_gives_its_turn_back():
    queue, done = WriteQueue(1), []
    with pytest.raises(ValueError, match="no"):
        async with queue.turn(Urgency.DELETE):
            raise ValueError("no")
    await asyncio.wait_for(one(queue, "next", done), 1)
    assert done == ["next"]


async def test_a_decision_that_deletions_wait_for_goes_before_reports():
    queue, done = WriteQueue(1), []
    names = {"a": Urgency.CHANGE, "b": Urgency.CHANGE, "c": Urgency.BEFORE_DELETE, "d": Urgency.DELETE}
    await asyncio.gather(*(one(queue, name, done, urgency=urgency) for name, urgency in names.items()))
    assert done == ["a", "d", "c", "b"]


@pytest.mark.parametrize(
    ("urgency", "waiting", "is_backed_up"),
    [(Urgency.CHANGE, 2, False), (Urgency.CHANGE, 3, True), (Urgency.DELETE, 3, True), (Urgency.CREATE, 3, False)],
)
async def test_it_is_backed_up_while_more_changes_wait_than_may_be_under_way(urgency, waiting, is_backed_up):
    queue, done = WriteQueue(2), []
    writes = [asyncio.ensure_future(one(queue, "x", done, urgency=urgency)) for _ in range(2 + waiting)]
    await asyncio.sleep(0)
    assert queue.is_backed_up is is_backed_up
    await queue.until_not_backed_up()
    assert bool(done) is is_backed_up, "it waits for writes to end"
    assert len(done) < len(writes), "it waits no longer than needed"
    await asyncio.gather(*writes)
    assert not queue.is_backed_up
