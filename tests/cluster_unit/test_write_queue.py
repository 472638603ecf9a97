"""Turns at the API server: who waits for a write, and who goes first."""

from __future__ import annotations

import asyncio

import pytest

from elastic_operator.cluster.errors import Fenced, TooManyRequests, Unreachable
from elastic_operator.cluster.write_queue import LEAST_IN_FLIGHT, Urgency, WriteQueue


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
async def test_a_cancelled_write_keeps_no_turn(served):
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


async def test_a_write_that_raises_returns_its_turn():
    queue, done = WriteQueue(1), []
    with pytest.raises(ValueError, match="no"):
        async with queue.turn(Urgency.DELETE):
            raise ValueError("no")
    await asyncio.wait_for(one(queue, "next", done), 1)
    assert done == ["next"]


async def test_a_decision_that_deletions_wait_for_goes_before_reports():
    queue, done = WriteQueue(1), []
    names = {
        "a": Urgency.CHANGE,
        "b": Urgency.CHANGE,
        "c": Urgency.BEFORE_DELETE,
        "d": Urgency.DELETE,
        "e": Urgency.RESERVE,
    }
    await asyncio.gather(*(one(queue, name, done, urgency=urgency) for name, urgency in names.items()))
    assert done == ["a", "e", "d", "c", "b"]


@pytest.mark.parametrize(
    ("urgency", "waiting", "is_backed_up"),
    [(Urgency.CHANGE, 2, False), (Urgency.CHANGE, 3, True), (Urgency.DELETE, 3, True), (Urgency.CREATE, 3, False)],
)
async def test_the_queue_is_backed_up_while_more_changes_wait_than_may_be_under_way(urgency, waiting, is_backed_up):
    queue, done = WriteQueue(2), []
    writes = [asyncio.ensure_future(one(queue, "x", done, urgency=urgency)) for _ in range(2 + waiting)]
    await asyncio.sleep(0)
    assert queue.is_backed_up is is_backed_up
    await queue.until_not_backed_up()
    assert bool(done) is is_backed_up, "it waits for writes to end"
    assert len(done) < len(writes), "it waits no longer than needed"
    await asyncio.gather(*writes)
    assert not queue.is_backed_up


class Server:
    """An API server that needs `alone` seconds for a write, and `share` more for each other one that is in flight."""

    def __init__(self, *, alone: float, share: float, most: int = 32) -> None:
        self.alone, self.share, self.queue = alone, share, WriteQueue(most)
        self.in_flight, self.seen = 0, list[int]()

    async def write(self, urgency: Urgency, kind: str = "PATCH jobs") -> None:
        async with self.queue.turn(urgency, kind):
            self.in_flight += 1
            self.seen.append(self.in_flight)
            await asyncio.sleep(self.alone + self.share * (self.in_flight - 1))
            self.in_flight -= 1

    async def fail(self, error: Exception, *, seconds: float = 0) -> None:
        async def write() -> None:
            async with self.queue.turn(Urgency.CHANGE, "PATCH jobs"):
                await asyncio.sleep(seconds)
                raise error

        with pytest.raises(type(error)):
            await write()

    async def write_many(self, count: int, urgency: Urgency = Urgency.CHANGE, kind: str = "PATCH jobs") -> list[int]:
        """The writes in flight when each of these began."""
        self.seen = []
        await asyncio.gather(*(self.write(urgency, kind) for _ in range(count)))
        return self.seen

    async def get_busy(self) -> None:
        """Answer so late that the least number of writes is in flight."""
        before, self.alone = self.alone, 1
        assert max((await self.write_many(200))[100:]) == LEAST_IN_FLIGHT
        self.alone = before


async def known_server(*, alone: float = 0.01) -> Server:
    """A server whose answers the queue knows."""
    server = Server(alone=alone, share=0)
    await server.write_many(100)
    return server


async def test_fewer_writes_are_in_flight_while_they_slow_the_server_and_more_when_it_is_fast_again() -> None:
    server = Server(alone=0.01, share=0.01)
    seen = await server.write_many(1000)
    assert max(seen) == 32
    assert LEAST_IN_FLIGHT <= max(seen[500:]) <= 16
    server.share = 0
    assert max((await server.write_many(1000))[-32:]) == 32


async def test_changes_and_creations_wait_at_a_busy_server_and_deletions_do_not() -> None:
    server = await known_server()
    server.alone = 1
    assert max((await server.write_many(200))[100:]) == LEAST_IN_FLIGHT
    assert max((await server.write_many(200, Urgency.CREATE))[100:]) == LEAST_IN_FLIGHT
    assert max((await server.write_many(200, Urgency.DELETE))[100:]) == 32
    assert max((await server.write_many(200, Urgency.BEFORE_DELETE))[100:]) == 32


async def test_changes_have_their_turns_one_by_one_beside_deletions_at_a_busy_server() -> None:
    server = await known_server()
    await server.get_busy()
    deletions = [asyncio.ensure_future(server.write(Urgency.DELETE)) for _ in range(LEAST_IN_FLIGHT)]
    await asyncio.sleep(0)
    assert max(await server.write_many(5)) == LEAST_IN_FLIGHT + 1
    await asyncio.gather(*deletions)


async def test_a_server_whose_every_answer_is_late_does_not_count_as_busy() -> None:
    server = Server(alone=0.3, share=0.001)
    assert max((await server.write_many(500))[-32:]) == 32


async def test_a_server_that_is_late_with_one_kind_of_writes_does_not_count_as_busy() -> None:
    server = Server(alone=0.005, share=0)
    await server.write_many(100, kind="POST events")
    server.alone = 0.1
    assert max((await server.write_many(500, kind="POST pods"))[-32:]) == 32


async def test_one_slow_answer_halves_the_limit_once() -> None:
    server = await known_server()
    server.alone = 0.2
    await server.write_many(32)
    server.alone = 0.01
    assert max(await server.write_many(16)) == 16


async def test_the_time_for_which_the_process_stood_still_does_not_count() -> None:
    server = await known_server()
    server.alone = 0.5
    writes = [asyncio.ensure_future(server.write(Urgency.CHANGE)) for _ in range(32)]
    await asyncio.sleep(0.4)
    server.queue.note_standstill(0.49)
    await asyncio.gather(*writes)
    server.alone = 0.01
    assert max(await server.write_many(32)) == 32


async def test_an_answer_while_the_process_stood_still_is_not_the_fastest() -> None:
    server = await known_server(alone=0.2)
    writing = asyncio.ensure_future(server.write(Urgency.CHANGE))
    await asyncio.sleep(0.1)
    server.queue.note_standstill(0.199)
    await writing
    assert max((await server.write_many(100))[-32:]) == 32


async def test_late_answers_count_although_the_process_stands_still_again_and_again() -> None:
    server = await known_server()
    server.alone = 2
    writing = asyncio.ensure_future(server.write_many(100))
    while not writing.done():
        await asyncio.sleep(0.5)
        server.queue.note_standstill(0.1)
    assert max(writing.result()[50:]) <= 8


async def test_fast_refusals_and_errors_before_the_request_do_not_count_and_timeouts_do() -> None:
    server = await known_server(alone=0.2)
    await server.fail(Fenced("no lease"))
    assert max(await server.write_many(100)) == 32
    await server.get_busy()
    for _ in range(100):
        await server.fail(Unreachable("refused"))
    assert max(await server.write_many(LEAST_IN_FLIGHT * 2)) == LEAST_IN_FLIGHT
    server = await known_server()
    await server.fail(Unreachable("no answer in time"), seconds=8)
    assert max(await server.write_many(32)) <= 17


async def test_a_server_that_has_too_many_requests_gets_fewer() -> None:
    server = await known_server()
    await server.fail(TooManyRequests("busy", status=429))
    assert max(await server.write_many(16)) == 16
    await server.fail(TooManyRequests("busy", status=429))
    assert max(await server.write_many(8)) <= 9


async def test_writes_that_are_cancelled_while_they_wait_are_not_in_the_queue():
    queue = WriteQueue(1)
    async with queue.turn(Urgency.CHANGE):
        writes = [asyncio.ensure_future(one(queue, "x", [])) for _ in range(5)]
        await asyncio.sleep(0)
        for write in writes:
            write.cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        assert not queue.is_backed_up
