"""One object at which the operator raises is set aside; all others go on, in the same pass.

The error is put into one station of the operator's way from the stores to the writes, for one object only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from elastic_operator.cluster import convert
from elastic_operator.loop import act, controller, policies, read, requests, shapes, view
from elastic_operator.plan import allocate, explain
from tests.simulate import server as kinds
from tests.simulate.facts import owner_of, staying
from tests.simulate.moments import Moments
from tests.simulate.operators import Operator
from tests.simulate.server import Body
from tests.simulate.world import METRICS, World

BAD = "bad"
MARK = "marked-as-bad"
"""A label in the template of such a job, for stations that see no more of it."""


class MadeUpError(Exception):
    """What the station raises."""


class Operating:
    """Whether the operator is at work, and not the checker that looks at its decisions afterwards."""

    now = False


@contextmanager
def operating() -> Iterator[None]:
    """Keeps `Operating.now` true."""
    work = Operator.run_pass

    async def run_pass(self: Operator) -> float:
        Operating.now = True
        try:
            return await work(self)
        finally:
            Operating.now = False

    with patch.object(Operator, "run_pass", run_pass):
        yield


def _names(*arguments: Any) -> Iterator[str]:
    """The names of the objects that a station is called with."""
    for one in arguments:
        for found in (one, getattr(one, "job", None), getattr(one, "metadata", None)):
            name = getattr(found, "name", None)
            if isinstance(name, str):
                yield name
        if isinstance(one, dict) and MARK in str(one):
            yield BAD


@contextmanager
def raising(where: Any, name: str) -> Iterator[None]:
    """The station raises for objects with a name that begins with `BAD`; it does its work for all others."""
    work = getattr(where, name)

    def station(*arguments: Any, **more: Any) -> Any:
        if Operating.now and any(found.startswith(BAD) for found in _names(*arguments)):
            raise MadeUpError("made up")
        return work(*arguments, **more)

    with patch.object(where, name, station):
        yield


@contextmanager
def raising_in_allocation() -> Iterator[None]:
    """Each allocation that has to do with such a job or pod raises, and does not say which one it was."""
    work = allocate.Allocator.allocate

    def station(self: Any, snapshot: Any) -> Any:
        if any(one.name.startswith(BAD) for one in (*snapshot.jobs, *snapshot.requests)):
            raise MadeUpError("made up")
        return work(self, snapshot)

    with patch.object(allocate.Allocator, "allocate", station):
        yield


STATIONS: dict[str, Callable[[], Any]] = {
    "parse": lambda: raising(read, "parse_spec"),
    "facts": lambda: raising(read.Reader, "facts"),
    "observe": lambda: raising(view, "observe"),
    "shape": lambda: raising(shapes, "shape_of"),
    "demand": lambda: raising(read, "demand_of"),
    "allocate": raising_in_allocation,
    "settle": lambda: raising(controller, "settle"),
    "explain": lambda: raising(explain.Explainer, "why"),
    "act": lambda: raising(act.Actor, "carry_out"),
}
WRITES_NOTHING = ("act",)


def lived(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    """The story, in a world of its own."""
    moments = Moments()
    with moments.rule(Random(1)), operating():
        asyncio.run(story(World(moments, Random(1))))


def pods_of(world: World, job: Body) -> list[Body]:
    """The job's pods that stay."""
    uid = job["metadata"]["uid"]
    pods = [pod for pod in world.server.all(kinds.PODS) if staying(pod)]
    return [pod for pod in pods if (owner := owner_of(pod)) and owner["uid"] == uid]


def add_job(world: World, name: str, namespace: str, **spec: Any) -> Body:
    """A job of that name, whose pods ask for a GPU each."""
    with patch.object(world, "new_name", lambda _: name):
        job = world.add_job(namespace, gpus=1, pool="a", **spec)
    if name.startswith(BAD):
        template = job["spec"]["template"]
        marked = {**template, "metadata": {**template.get("metadata", {}), "labels": {MARK: "yes"}}}
        job = world.server.edit(kinds.JOBS, job, {**job["spec"], "template": marked})
    return job


def add_policy(world: World, name: str, *, guaranteed: int, limit: int) -> None:
    """A policy for the namespace of its name; it may borrow so many GPUs."""
    flavors = [{"name": "a", "guaranteed": guaranteed, "borrowing": {"limit": limit, "weight": 1}}]
    spec = {"flavors": flavors, "namespaces": [name]}
    world.server.create(kinds.POLICIES, {"metadata": {"name": name}, "spec": spec})


def ready(world: World, job: Body) -> str:
    """The STATUS of the job."""
    now = next(one for one in world.server.all(kinds.JOBS) if one["metadata"]["uid"] == job["metadata"]["uid"])
    conditions = {c["type"]: c for c in now.get("status", {}).get("conditions", ())}
    return conditions.get("Ready", {}).get("reason", "")


def errors(kind: str) -> float:
    """How many errors of the operator's own were counted at objects of that kind."""
    return METRICS.internal_errors.labels(kind)._value.get()


@pytest.mark.parametrize("station", STATIONS)
def test_a_job_at_which_a_station_raises_is_set_aside_and_the_others_start(station: str) -> None:
    async def story(world: World) -> None:
        world.add_node(4, "a")
        before, passes = errors("job"), METRICS.pass_errors._value.get()
        with STATIONS[station]():
            bad = add_job(world, "bad", "red", minReplicas=1, maxReplicas=1)
            good = add_job(world, "good", "blue", minReplicas=1, maxReplicas=2)
            await world.settle()
            await world.advance(60)
            assert len(pods_of(world, good)) == 2
            assert not pods_of(world, bad)
            assert errors("job") > before
            assert METRICS.pass_errors._value.get() == passes
            if station not in WRITES_NOTHING:
                assert ready(world, bad) == "InternalError"
        await world.advance(330)
        assert len(pods_of(world, bad)) == 1
        assert ready(world, bad) != "InternalError"

    lived(story)


@pytest.mark.parametrize("station", [s for s in STATIONS if s not in ("act", "allocate")])
def test_the_gpus_of_a_job_that_is_set_aside_are_still_given_to_those_entitled_to_them(station: str) -> None:
    async def story(world: World) -> None:
        world.add_node(4, "a")
        add_policy(world, "red", guaranteed=0, limit=8)
        add_policy(world, "blue", guaranteed=3, limit=0)
        bad = add_job(world, "bad", "red", minReplicas=1, maxReplicas=4)
        await world.settle()
        await world.advance(30)
        assert len(pods_of(world, bad)) == 4
        with STATIONS[station]():
            good = add_job(world, "good", "blue", minReplicas=3, maxReplicas=3)
            world.server.edit(kinds.JOBS, bad, {**bad["spec"], "maxReplicas": 5})
            await world.settle()
            await world.advance(60)
            assert len(pods_of(world, good)) == 3
            assert [pod["metadata"]["name"] for pod in pods_of(world, bad)] == ["bad-master-0"]

    lived(story)


def test_a_waiting_pod_at_which_the_operator_raises_is_left_alone_and_the_next_one_is_helped() -> None:
    async def story(world: World) -> None:
        before = errors("pod")
        with raising(requests.Requests, "_look_at"):
            world.add_node(1, "a")
            with patch.object(world, "new_name", lambda _: "bad"):
                world.add_foreign("red", gpus=8, pool="a")
            good = add_job(world, "good", "blue", minReplicas=1, maxReplicas=1)
            await world.settle()
            await world.advance(30)
            assert len(pods_of(world, good)) == 1
            assert errors("pod") > before

    lived(story)


def test_a_node_at_which_the_operator_raises_is_left_out_and_the_others_are_used() -> None:
    async def story(world: World) -> None:
        before = errors("node")
        with raising(convert, "node"):
            with patch.object(world, "new_name", lambda _: "bad"):
                world.add_node(4, "a")
            world.add_node(2, "a")
            good = add_job(world, "good", "blue", minReplicas=1, maxReplicas=4)
            await world.settle()
            await world.advance(30)
            assert len(pods_of(world, good)) == 2
            assert errors("node") > before
        await world.advance(330)
        assert len(pods_of(world, good)) == 4

    lived(story)


@pytest.mark.parametrize("station", ["policy_of", "resolve"])
def test_a_policy_at_which_the_operator_raises_is_set_aside_and_the_others_hold(station: str) -> None:
    work = getattr(policies, station)

    def broken(found: Any, *arguments: Any, **more: Any) -> Any:
        some = [found.metadata.name] if station == "policy_of" else [p.name for p in found if p.spec is not None]
        if "red" in some:
            raise MadeUpError("made up")
        return work(found, *arguments, **more)

    async def story(world: World) -> None:
        world.add_node(4, "a")
        before = errors("policy")
        with patch.object(policies, station, broken):
            add_policy(world, "red", guaranteed=1, limit=1)
            add_policy(world, "blue", guaranteed=1, limit=0)
            good = add_job(world, "good", "blue", minReplicas=1, maxReplicas=4)
            await world.settle()
            await world.advance(30)
            assert len(pods_of(world, good)) == 1
            assert errors("policy") > before
            resolved = world.operator.controller.view.reader.policies
            assert {p.reason for found in resolved.problems.values() for p in found} == {"InternalError"}

    lived(story)


@pytest.mark.parametrize("station", ["policy_of", "resolve"])
def test_a_policy_that_is_set_aside_after_an_edit_holds_as_it_was(station: str) -> None:
    work = getattr(policies, station)

    def guarantees(found: Any) -> set[int]:
        if station == "policy_of":
            return {flavor["guaranteed"] for flavor in found.spec["flavors"]}
        return {flavor.guaranteed for p in found if p.spec is not None for flavor in p.spec.flavors}

    def broken(found: Any, *arguments: Any, **more: Any) -> Any:
        if 3 in guarantees(found):
            raise MadeUpError("made up")
        return work(found, *arguments, **more)

    async def story(world: World) -> None:
        world.add_node(4, "a")
        add_policy(world, "red", guaranteed=2, limit=0)
        await world.settle()
        policy = world.server.find(kinds.POLICIES, "", "red")
        spec = {**policy["spec"], "flavors": [{**policy["spec"]["flavors"][0], "guaranteed": 3}]}
        world.server.edit(kinds.POLICIES, policy, spec)
        with patch.object(policies, station, broken):
            await world.operator.run_pass()
            resolved = world.operator.controller.view.reader.policies
            assert [team.quotas["a"].guaranteed for team in resolved.teams] == [2]
            assert {p.reason for found in resolved.problems.values() for p in found} == {"InternalError"}
        await world.advance(330)
        resolved = world.operator.controller.view.reader.policies
        assert [team.quotas["a"].guaranteed for team in resolved.teams] == [3]

    lived(story)


def test_an_allocation_that_raises_whatever_the_jobs_are_is_blamed_on_none_of_them() -> None:
    work = allocate.Allocator.allocate

    def broken(self: Any, snapshot: Any) -> Any:
        if any(node.name == BAD for node in snapshot.nodes):
            raise MadeUpError("made up")
        return work(self, snapshot)

    async def story(world: World) -> None:
        with patch.object(world, "new_name", lambda _: BAD):
            world.add_node(4, "a")
        add_job(world, "good", "blue", minReplicas=1, maxReplicas=1)
        before = errors("job")
        with patch.object(allocate.Allocator, "allocate", broken), pytest.raises(MadeUpError):
            await world.operator.run_pass()
        assert errors("job") == before

    lived(story)
