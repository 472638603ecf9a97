"""How many pods are made at once, and that nothing else waits for them."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from itertools import pairwise, permutations
from typing import Any

import pytest

from elastic_operator.build.request import BuildSettings
from elastic_operator.cluster import objects
from elastic_operator.cluster.errors import (
    BadRequest,
    ClusterError,
    Conflict,
    Fenced,
    Forbidden,
    Outdated,
    PodRefused,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.stores import Stores
from elastic_operator.loop.writes import create
from elastic_operator.loop.writes.create import MAX_PODS_AT_ONCE, Creator, gather_all
from elastic_operator.plan.facts.decisions import NewPods, Slot
from elastic_worker import contract
from tests.cluster_unit.build import pod
from tests.plan.jobs import make_job

SERVICE = objects.Service(
    objects.Meta(name="toy-master", uid="service", resource_version="1"), objects.ServiceSpec(cluster_ip="10.0.0.1")
)


@pytest.mark.parametrize(
    ("error", "may_exist"),
    [
        (Unreachable("no answer"), True),
        (ServerError("the server gave up", status=504), True),
        (ServerError("etcdserver: request timed out", status=500), True),
        (ServerError("not now", status=503), False),
        (ServerError("failed calling webhook", status=500), False),
        (Forbidden("exceeded quota", status=403), False),
    ],
    ids=["no answer", "given up", "etcd is slow", "overload", "a webhook is down", "refused"],
)
async def test_a_pod_that_may_exist_keeps_its_room(monkeypatch, error, may_exist):
    async def post(*_arguments: Any, **_more: Any) -> Any:
        raise error

    monkeypatch.setattr(create.pod_requests, "create_pod", post)
    creator = Creator(None, None, BuildSettings("", ""))  # type: ignore[arg-type] # only pods are made
    sent = set[str]()
    slot = Slot("worker", 0, None, True)
    with pytest.raises(ClusterError):
        await creator.create(make_job(), NewPods((slot,), 1, (1, 2)), slot, SERVICE, sent)
    assert sent == ({"toy-worker-0"} if may_exist else set())


async def test_a_pod_of_another_incarnation_is_not_the_one_to_create_and_is_known_from_then_on(monkeypatch):
    stores = Stores(**{field.name: Store() for field in fields(Stores)})
    late = pod("toy-worker-0", uid="late", labels={contract.LABEL_INCARNATION: "1"})

    async def post(*_arguments: Any, **_more: Any) -> Any:
        return late

    monkeypatch.setattr(create.pod_requests, "create_pod", post)
    creator = Creator(None, stores, BuildSettings("", ""))  # type: ignore[arg-type] # only pods are made
    sent, slot = set[str](), Slot("worker", 0, None, True)
    with pytest.raises(Outdated, match=r"^pod toy-worker-0 of incarnation 1 exists$"):
        await creator.create(make_job(), NewPods((slot,), 2, (1, 2)), slot, SERVICE, sent)
    assert not sent
    assert stores.pods.get("late") is late


async def test_of_many_pods_a_few_are_made_at_once_and_one_manifest_in_a_turn_of_the_event_loop(monkeypatch):
    turns, built, most = 0, list[int](), 0
    waiting: set[asyncio.Future[None]] = set()
    real = create.build_pod

    def build(*arguments: Any, **more: Any) -> Any:
        built.append(turns)
        return real(*arguments, **more)

    async def post(*_arguments: Any, **_more: Any) -> Any:
        nonlocal most
        answer = asyncio.get_running_loop().create_future()
        waiting.add(answer)
        most = max(most, len(waiting))
        await answer
        raise Unreachable("no answer")

    monkeypatch.setattr(create, "build_pod", build)
    monkeypatch.setattr(create.pod_requests, "create_pod", post)
    creator = Creator(None, None, BuildSettings("", ""))  # type: ignore[arg-type] # only pods are made
    job, sent = make_job(), set[str]()
    new = NewPods(tuple(Slot("worker", index, None, True) for index in range(100)), 1, (1, 200))
    tasks = [asyncio.ensure_future(creator.create(job, new, slot, SERVICE, sent)) for slot in new.slots]
    while not all(task.done() for task in tasks):
        turns += 1
        await asyncio.sleep(0)
        if len(waiting) == MAX_PODS_AT_ONCE or len(built) == len(tasks):
            for answer in waiting:
                answer.set_result(None)
            waiting.clear()
    assert len(built) == len(sent) == 100
    assert most == MAX_PODS_AT_ONCE
    assert len(set(built)) == len(built), "two manifests were built in one turn"
    for task in tasks:
        assert isinstance(task.exception(), Unreachable)


GRAVEST_FIRST: list[Exception] = [
    TypeError("an error of the operator's own"),
    PodRefused(BadRequest("unknown field", status=400), role="worker"),
    Forbidden("exceeded quota", status=403),
    Unreachable("no answer"),
    Fenced("the lease is over"),
    Conflict("the object has been modified", status=409),
]


async def outcome(*errors: Exception) -> Exception | None:
    """What is raised of writes that fail with these errors, beside one that does not."""

    async def write(error: Exception | None) -> None:
        if error is not None:
            raise error

    try:
        await gather_all((write(error) for error in (*errors, None)), of="a/toy")
    except Exception as raised:  # noqa: BLE001 - it is what the test looks at
        return raised
    return None


@pytest.mark.parametrize(("graver", "other"), [*pairwise(GRAVEST_FIRST)], ids=repr)
async def test_of_writes_that_fail_together_the_gravest_error_is_raised_and_the_others_are_logged(
    caplog: pytest.LogCaptureFixture, graver: Exception, other: Exception
) -> None:
    caplog.set_level("INFO")
    for errors in permutations([graver, other]):
        caplog.clear()
        assert await outcome(*errors) is graver
        assert str(other) in caplog.text
        assert str(graver) not in caplog.text
        assert "job=a/toy" in caplog.text


async def test_writes_that_succeed_together_raise_nothing() -> None:
    assert await outcome() is None


async def test_of_many_pods_that_fail_alike_one_error_is_raised_and_no_other_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    errors = [Unreachable(f"no answer for {number}") for number in range(8)]
    assert await outcome(*errors) is errors[0]
    assert not caplog.records


async def test_an_error_of_the_operators_own_beside_a_graver_one_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert isinstance(await outcome(TypeError("one"), KeyError("another")), TypeError)
    assert "Traceback" in caplog.text
    assert "another" in caplog.text


async def test_of_writes_that_fail_together_the_longest_wait_that_the_server_asks_for_counts() -> None:
    busy = [TooManyRequests("slow down", status=429, retry_after=seconds) for seconds in (5.0, 2.0)]
    raised = await outcome(busy[1], Forbidden("exceeded quota", status=403), busy[0])
    assert isinstance(raised, Forbidden)
    assert raised.retry_after == 5.0
