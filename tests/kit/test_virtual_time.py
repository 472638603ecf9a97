"""The virtual loop: time jumps only when nothing can run, and two runs are equal."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

import pytest

from tests.kit import virtual_time
from tests.kit.virtual_time import START, StandstillError


def test_an_hour_is_over_at_once_and_everybody_tells_the_same_time():
    async def main():
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time(), time.monotonic(), time.time() - START

    before = time.monotonic()
    assert virtual_time.run(main) == (3600, 3600, 3600)
    assert time.monotonic() >= before, "outside the loop the real time goes on"


def test_timers_fire_in_their_order_and_at_their_moments():
    async def main():
        told = []

        async def tell(seconds):
            await asyncio.sleep(seconds)
            told.append((seconds, time.monotonic()))

        await asyncio.gather(*(tell(seconds) for seconds in (0.3, 0.1, 7.0, 0.2)))
        return told

    assert virtual_time.run(main) == [(0.1, 0.1), (0.2, 0.2), (0.3, 0.3), (7.0, 7.0)]


def test_who_computes_keeps_everybody_else_waiting():
    async def main():
        timer = asyncio.ensure_future(asyncio.sleep(1.0))
        await asyncio.sleep(0.5)
        asyncio.get_running_loop().keep_busy(3.0)
        await timer
        return time.monotonic()

    assert virtual_time.run(main) == 3.5


def test_a_time_limit_runs_out_at_its_end():
    async def main():
        with suppress(TimeoutError):
            async with asyncio.timeout(15):
                await asyncio.Event().wait()
        return time.monotonic()

    assert virtual_time.run(main) == 15


def test_no_time_passes_while_anything_can_run():
    async def main():
        late = asyncio.create_task(asyncio.sleep(0.001))
        for _ in range(10_000):
            await asyncio.sleep(0)
        return late.done(), time.monotonic()

    assert virtual_time.run(main) == (False, 0)


def test_what_would_run_in_a_thread_runs_on_the_loop_and_takes_no_time():
    async def main():
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(time.monotonic)

    assert virtual_time.run(main) == 0


def test_two_runs_of_a_seed_draw_alike_and_leave_other_random_numbers_alone():
    async def main():
        return random.random()

    random.seed(5)
    own = random.random()
    random.seed(5)
    assert virtual_time.run(main, seed=3) == virtual_time.run(main, seed=3) != virtual_time.run(main, seed=4)
    assert random.random() == own


def test_who_waits_for_what_cannot_come_fails_at_once():
    async def main():
        await asyncio.sleep(2)
        await asyncio.Event().wait()

    with pytest.raises(StandstillError, match="everybody waits for somebody else at 2 s"):
        virtual_time.run(main)


def test_who_is_busy_for_ever_at_one_moment_fails(monkeypatch):
    monkeypatch.setattr(virtual_time, "MOST_TURNS", 100)

    async def main():
        while True:  # noqa: ASYNC110 - that is the fault
            await asyncio.sleep(0)

    with pytest.raises(StandstillError, match="in circles at 0 s"):
        virtual_time.run(main)


def test_sockets_of_one_loop_are_served_before_time_goes_on():
    async def main():
        async def answer(reader, writer):
            writer.write(await reader.readline())
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1") as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            async with asyncio.timeout(0.001):
                writer.write(b"hello\n")
                answered = await reader.readline()
            writer.close()
            await writer.wait_closed()
        return answered, time.monotonic()

    assert virtual_time.run(main) == (b"hello\n", 0)


async def test_an_async_test_of_this_folder_has_the_time_of_its_loop():
    await asyncio.sleep(1000)
    assert time.monotonic() == 1000
