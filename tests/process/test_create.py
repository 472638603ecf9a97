"""How many pods are made at once, and that nothing else waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from elastic_operator.build.request import BuildSettings
from elastic_operator.cluster import objects
from elastic_operator.cluster.errors import ClusterError, Forbidden, ServerError, Unreachable
from elastic_operator.loop.writes import create
from elastic_operator.loop.writes.create import MAX_PODS_AT_ONCE, Creator
from elastic_operator.plan.facts.decisions import CreatePod
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

    monkeypatch.setattr(create.apply, "create_pod", post)
    creator = Creator(None, None, BuildSettings("", ""))  # type: ignore[arg-type] # only pods are made
    sent = set[str]()
    with pytest.raises(ClusterError):
        await creator.create(make_job(), CreatePod("worker", 0, None, 1, (1, 2)), SERVICE, sent)
    assert sent == ({"toy-worker-0"} if may_exist else set())


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
    monkeypatch.setattr(create.apply, "create_pod", post)
    creator = Creator(None, None, BuildSettings("", ""))  # type: ignore[arg-type] # only pods are made
    job, sent = make_job(), set[str]()
    creates = [CreatePod("worker", index, None, 1, (1, 200)) for index in range(100)]
    tasks = [asyncio.ensure_future(creator.create(job, one, SERVICE, sent)) for one in creates]
    while not all(task.done() for task in tasks):
        turns += 1
        await asyncio.sleep(0)
        if len(waiting) == MAX_PODS_AT_ONCE or len(built) == len(creates):
            for answer in waiting:
                answer.set_result(None)
            waiting.clear()
    assert len(built) == len(sent) == 100
    assert most == MAX_PODS_AT_ONCE
    assert len(set(built)) == len(built), "two manifests were built in one turn"
    for task in tasks:
        assert isinstance(task.exception(), Unreachable)
