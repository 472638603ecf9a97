"""A signal that asks a command to end cancels its coroutine, and interrupts no line of the event loop."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from elastic_client import stops
from elastic_client.exits import Code


@pytest.fixture(autouse=True)
def no_signal_is_ignored():
    """A shell ignores SIGQUIT for what it starts in the background."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in stops.SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def end_of(work) -> object:
    """The exit code of a command that runs the coroutine."""
    with stops.handled(), pytest.raises(SystemExit) as end:
        stops.run(work)
    return end.value.code


@pytest.mark.parametrize("number", stops.SIGNALS)
def test_a_signal_interrupts_no_line_and_the_coroutine_cleans_up(number: signal.Signals):
    seen = []

    def signalled() -> None:
        os.kill(os.getpid(), number)
        seen.append("the callback goes on")

    async def work() -> None:
        asyncio.get_running_loop().call_soon(signalled)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            seen.append("cleans up")

    assert end_of(work()) == Code.STOPPED
    assert seen == ["the callback goes on", "cleans up"]


def test_the_second_signal_does_not_wait_for_what_cleans_up():
    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            loop.call_soon(os.kill, os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

    assert end_of(work()) == Code.STOPPED


def test_a_signal_after_the_coroutine_ends_the_process():
    with stops.handled():
        stops.run(asyncio.sleep(0))
        with pytest.raises(SystemExit, match=str(int(Code.STOPPED))):
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_that_is_ignored_stays_so_and_handlers_are_put_back():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stops.handled():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) is stops._stop
        assert signal.getsignal(signal.SIGTERM) is not stops._stop
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_coroutine_that_is_cancelled_by_itself_is_no_stop():
    async def work() -> None:
        raise asyncio.CancelledError

    with stops.handled(), pytest.raises(asyncio.CancelledError):
        stops.run(work())
