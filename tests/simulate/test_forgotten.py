"""The operator forgets what it remembered of a deleted job."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Set
from functools import partial
from random import Random
from types import FunctionType, MethodType
from typing import Any

from elastic_operator.cluster.events import EventRecorder
from elastic_operator.cluster.store import Store
from tests.simulate import server as kinds
from tests.simulate.test_eviction_limits import teams, with_limits
from tests.simulate.test_quarantine import add_job, pods_of, run_scenario
from tests.simulate.virtual_clock import VirtualClock
from tests.simulate.world import World

NOT_BY_JOB = (Store, EventRecorder)
"""These forget by number or time, or outlive a leader's loop (docs/internals.md)."""


def parts_of(thing: Any) -> list[Any]:
    """The thing and the operator's objects that it is made of, each once."""
    found, left = dict[int, Any](), [thing]
    while left:
        one = left.pop()
        one = getattr(one, "__self__", one)  # of a method, the object
        if id(one) not in found and type(one).__module__.startswith("elastic_operator."):
            found[id(one)] = one
            left += getattr(one, "__dict__", {}).values()
    return list(found.values())


def test_every_memory_of_jobs_is_in_the_list_that_each_pass_goes_through() -> None:
    controller = World(VirtualClock(), Random(1)).operator.controller
    found = {type(one) for one in parts_of(controller) if hasattr(one, "forget_deleted")}
    assert found == {type(one) for one in controller.of_jobs}


def things_in(thing: Any) -> Iterator[tuple[str, Any]]:
    """What hangs on the thing, by its name there: attributes and items, and what a function works with."""
    if isinstance(thing, Mapping):
        for key, value in list(thing.items()):
            yield from ((f"[{key!r}]", value), ("key", key))
    if isinstance(thing, (list, tuple, Set, deque)):
        yield from (("[]", one) for one in list(thing))
    elif isinstance(thing, partial):
        yield from (("of", one) for one in (thing.func, *thing.args, *thing.keywords.values()))
    elif isinstance(thing, MethodType):
        yield "self", thing.__self__
    elif isinstance(thing, FunctionType):
        yield from (("cell", cell.cell_contents) for cell in thing.__closure__ or ())
    elif type(thing).__module__.startswith("elastic_") and not isinstance(thing, NOT_BY_JOB):
        slots = [name for one in type(thing).__mro__ for name in getattr(one, "__slots__", ())]
        names = [*getattr(thing, "__dict__", {}), *slots]
        yield from ((f".{name}", getattr(thing, name)) for name in names if hasattr(thing, name))


def places_of(uids: Set[str], thing: Any) -> list[str]:
    """Where one of these uids is a key, or a part of one, in anything that hangs on the thing."""
    found, seen, left = list[str](), {id(thing): thing}, [("", thing)]
    while left:
        path, one = left.pop()
        for name, inner in things_in(one):
            if isinstance(inner, str):
                if inner in uids and isinstance(one, (Mapping, Set, tuple)):
                    found.append(path)
            elif id(inner) not in seen:
                seen[id(inner)] = inner
                left.append((path + name, inner))
    return found


def test_no_memory_between_passes_has_a_key_about_a_deleted_job() -> None:
    async def scenario(world: World) -> None:
        stays = teams(world, red=4)
        await world.advance(30)
        gone = add_job(world, "red", minReplicas=2, maxReplicas=4)
        await world.advance(60)
        pods = pods_of(world, gone)
        assert len(pods) == 4
        uids = {one["metadata"]["uid"] for one in (gone, *pods)}
        assert any(place.endswith(".queues.by_uid") for place in places_of(uids, world.operator.controller))
        world.server.remove(kinds.JOBS, gone)
        await world.advance(1800)
        assert pods_of(world, stays)
        assert places_of(uids, world.operator.controller) == []

    run_scenario(scenario)


def test_what_is_remembered_of_a_preemptor_ends_with_the_first_allocation_without_it() -> None:
    async def scenario(world: World) -> None:
        teams(world, red=12)
        await world.advance(30)
        gone = add_job(world, "red", minReplicas=10, maxReplicas=10)
        await world.advance(60)
        uids = {gone["metadata"]["uid"]}
        places = places_of(uids, world.operator.controller)
        for memory in ("._over_eviction_limit", "._times._waiting"):
            assert any(memory in place for place in places), "\n".join(places)
        world.server.remove(kinds.JOBS, gone)
        await world.advance(300)
        assert places_of(uids, world.operator.controller) == []

    with with_limits(max_evictions_per_decision=8, max_evictions_per_minute=100):
        run_scenario(scenario)
