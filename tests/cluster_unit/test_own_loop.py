"""What runs in a thread of its own holds nobody up, and ends nobody."""

from __future__ import annotations

import asyncio
import threading

import pytest

from elastic_operator.cluster.own_loop import run_in_own_loop

pytestmark = pytest.mark.processes
"""Threads with event loops of their own are what these are about, and virtual time has only one."""


async def sleep_for_ever() -> None:
    await asyncio.Event().wait()


async def test_what_runs_apart_can_cancel_no_task_of_ours():
    """That is what kopf does when it ends: it cancels every task of its loop that began after it."""
    ours = asyncio.create_task(sleep_for_ever())

    async def end_as_kopf_does() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    await run_in_own_loop(end_as_kopf_does)
    await asyncio.sleep(0)
    assert not ours.done()
    ours.cancel()


async def test_what_runs_apart_is_not_in_the_main_thread_whose_signals_are_ours():
    seen = []

    async def look() -> None:
        seen.append(threading.current_thread() is threading.main_thread())

    await run_in_own_loop(look)
    assert seen == [False]


async def test_an_error_of_what_runs_apart_is_told():
    async def fail() -> None:
        raise ValueError("unexpected answer")

    with pytest.raises(ValueError, match="unexpected answer"):
        await run_in_own_loop(fail)


async def test_what_runs_apart_has_ended_when_its_cancellation_returns():
    states, begun = [], threading.Event()

    async def work() -> None:
        states.append("begun")
        begun.set()
        try:
            await sleep_for_ever()
        finally:
            states.append("ended")

    task = asyncio.create_task(run_in_own_loop(work))
    assert await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert states == ["begun", "ended"]
