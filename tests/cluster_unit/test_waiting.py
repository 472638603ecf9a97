"""Waiting for the ends of tasks."""

import asyncio

import pytest

from elastic_operator.cluster.waiting import cancel_and_wait


class Ending:
    """A task whose end takes until `may_end`."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.ended = asyncio.Event(), asyncio.Event(), False
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.begun.set()
            await self.may_end.wait()
            self.ended = True


async def test_all_tasks_have_ended_however_they_end():
    async def fail() -> None:
        raise ValueError

    ending, failing = Ending(), asyncio.create_task(fail())
    await asyncio.sleep(0)
    ending.may_end.set()
    await cancel_and_wait(iter([ending.task, failing]))
    assert ending.ended
    assert failing.done()
    await cancel_and_wait([])


async def test_a_cancelled_caller_does_not_interrupt_the_end_of_a_task():
    ending = Ending()
    await asyncio.sleep(0)
    caller = asyncio.create_task(cancel_and_wait([ending.task]))
    await ending.begun.wait()
    caller.cancel()
    await asyncio.wait({caller}, timeout=0)
    ending.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await ending.task
    assert ending.ended
    assert caller.cancelled()
