"""What is remembered of jobs is forgotten with them."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from elastic_operator.loop.controller import Controller
from elastic_operator.metrics import Metrics
from elastic_operator.read.pending.gang_places import GangPlaces
from tests.simulate.moments import Moments
from tests.simulate.world import World

OF_OTHERS = (Controller, GangPlaces, Metrics)
"""These forget other things than jobs."""


def parts_of(thing: Any) -> list[Any]:
    """The thing and the operator's objects that it is made of, each once."""
    found, left = dict[int, Any](), [thing]
    while left:
        one = left.pop()
        if id(one) not in found and type(one).__module__.startswith("elastic_operator."):
            found[id(one)] = one
            left += getattr(one, "__dict__", {}).values()
    return list(found.values())


def test_every_memory_of_jobs_is_in_the_list_that_each_pass_goes_through() -> None:
    controller = World(Moments(), Random(1)).operator.controller
    found = {type(one) for one in parts_of(controller) if hasattr(one, "keep_only")}
    assert found - set(OF_OTHERS) == {type(one) for one in controller.of_jobs}


def test_a_leader_that_ends_leaves_no_listener_in_the_stores_that_outlive_it() -> None:
    operator = World(Moments(), Random(1)).operator
    listeners = operator.stores.jobs._listeners
    of_the_process = listeners[:1]
    assert len(listeners) > 1

    async def term() -> None:
        leading = asyncio.create_task(operator.controller.run())
        await asyncio.sleep(0)
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)

    asyncio.run(term())
    assert listeners == of_the_process
