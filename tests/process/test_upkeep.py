"""Writes for objects one by one: none that fails keeps another."""

from __future__ import annotations

import asyncio
import logging

import pytest

from elastic_operator.upkeep import upkeep
from elastic_operator.upkeep.upkeep import Upkeep


async def test_an_error_of_the_operator_s_own_at_one_object_keeps_no_other_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upkeep, "BETWEEN_SECONDS", 0.0)
    monkeypatch.setattr(upkeep, "UPKEEP_RETRY_SECONDS", 0.01)
    tries, written = 0, asyncio.Event()

    async def raises_twice() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise KeyError("odd")
        written.set()

    others = list[str]()

    async def works() -> None:
        others.append("b")

    kept = Upkeep("policy", "status", lambda: {"a": raises_twice, "b": works})
    kept.notify()
    with caplog.at_level(logging.ERROR):
        running = asyncio.create_task(kept.run())
        await asyncio.wait_for(written.wait(), 10.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert len(others) >= 2, "written in the rounds in which the first one raised"
    assert len([record for record in caplog.records if "the operator policy=a" in record.message]) == 1
