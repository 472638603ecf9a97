"""What is remembered of jobs is forgotten with them."""

from __future__ import annotations

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
