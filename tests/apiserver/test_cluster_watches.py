"""Stores against a real API server."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import uuid
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from elastic_api.job import GROUP, VERSION
from elastic_api.parse import parse_policy
from elastic_operator.cluster import lists, reflector
from elastic_operator.cluster.backoff import Backoff
from elastic_operator.cluster.connection import load_connection
from elastic_operator.cluster.objects import CustomObject, Node, Pod, PriorityClass
from elastic_operator.cluster.reflector import Reflector
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.wire import METADATA_ONLY
from elastic_operator.read.policies import policy_of
from elastic_operator.watches import POLICIES as WATCHED
from tests.api.policies import full_policy
from tests.apiserver.jobs_api import accepted
from tests.apiserver.policies_api import Policies
from tests.kit.wait import until_async

pytestmark = pytest.mark.apiserver


@pytest.fixture
async def session(kubeconfig: Path) -> AsyncIterator[Session]:
    """A session of the administrator's."""
    async with Session(load_connection(str(kubeconfig))) as session:
        yield session


@asynccontextmanager
async def following(reflector: Reflector[Any]) -> AsyncIterator[None]:
    """It has its first list, and watches."""
    task = asyncio.create_task(reflector.run())
    try:
        await until_async("the first list", reflector.synced.is_set, seconds=5)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_server_s_clock_is_read_from_its_answers(session: Session):
    assert (await session.get("/version"))["major"] == "1"
    assert abs(session.clock.time() - time.time()) < 2


@pytest.mark.parametrize("seconds", [0.003, 0.01, 0.03, 0.3])
def test_a_closed_session_leaves_no_connection_of_requests_that_were_broken_off(kubeconfig: Path, seconds: float):
    async def break_off() -> None:
        async with Session(load_connection(str(kubeconfig))) as session:
            watch = Reflector(session, reflector.PODS, Pod).run()
            requests = [asyncio.create_task(one) for one in (watch, *(session.get("/version") for _ in range(6)))]
            await asyncio.sleep(seconds)
            for request in requests:
                request.cancel()
            await asyncio.gather(*requests, return_exceptions=True)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.run(break_off())
        gc.collect()
    assert [str(one.message) for one in said if one.category is ResourceWarning] == []


async def test_what_the_server_has_is_listed_in_pages(session: Session, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lists, "PAGE", 1)
    classes = Reflector(session, reflector.PRIORITY_CLASSES, PriorityClass)
    async with following(classes):
        system = classes.store.named("system-node-critical")
        assert system is not None
        assert system.value == 2000001000


async def test_nodes_are_followed_from_their_making_to_their_end(session: Session):
    name = f"watched-{uuid.uuid4().hex[:6]}"
    nodes = Reflector(session, reflector.NODES, Node)
    async with following(nodes):
        await session.post("/api/v1/nodes", {"metadata": {"name": name, "labels": {"zone": "a"}}})
        await until_async("the node", lambda: nodes.store.named(name), seconds=5)
        await session.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"zone": "b"}}})
        await until_async("its label", lambda: nodes.store.named(name).metadata.labels["zone"] == "b", seconds=5)
        await session.delete(f"/api/v1/nodes/{name}", {})
        await until_async("its end", lambda: nodes.store.named(name) is None, seconds=5)
        assert nodes.stats.relists == 0


async def test_a_leader_catches_up_by_the_metadata_alone_and_takes_out_what_it_missed(
    session: Session, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lists, "PAGE", 1)
    name = f"missed-{uuid.uuid4().hex[:6]}"
    classes = Reflector(session, reflector.PRIORITY_CLASSES, PriorityClass)
    async with following(classes):
        await session.post(reflector.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": 1})
        await until_async("the class", lambda: classes.store.named(name) is not None, seconds=5)
        known = classes.store.named(name)
        await session.delete(f"{reflector.PRIORITY_CLASSES}/{name}", {})
        await until_async("its end", lambda: classes.store.named(name) is None, seconds=5)
        classes.store._tombstones.clear()
        classes.store.observe(known)  # as if its end had been missed
        await classes.catch_up()
        assert classes.store.named(name) is None
        assert classes.stats.relists == 0


@pytest.mark.usefixtures("policies")
@pytest.mark.parametrize("path", [reflector.PODS, WATCHED])
async def test_the_server_lists_metadata_alone(session: Session, path: str):
    """Of objects of its own, and of custom resources."""
    page = json.loads(await session.get_bytes(path, params={"limit": "1"}, accept=METADATA_ONLY))
    assert page["kind"] == "PartialObjectMetadataList"


@pytest.mark.extended
async def test_a_resource_version_of_the_future_is_given_up_after_some_tries(
    session: Session, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reflector, "INACTIVITY_SECONDS", 0.2)
    pods = Reflector(session, reflector.PODS, Pod)
    pods._backoff = Backoff(first=0.01)
    async with following(pods):
        relists = pods.stats.relists
        pods._revision = str(int(pods._revision) + 1_000_000)
        await until_async("another list", lambda: pods.stats.relists > relists, seconds=5)


async def test_a_policy_is_read_as_it_was_written(session: Session, policies: Policies):
    found = Reflector(session, WATCHED, CustomObject, optional=True)
    async with following(found):
        accepted(policies.post(full_policy()))
        name = policies.name("team-a")
        await until_async("the policy", lambda: found.store.named(name) is not None, seconds=5)
        policy = policy_of(found.store.named(name))
    assert (policy.name, policy.spec, policy.invalid) == (name, parse_policy(full_policy()), "")
    assert abs(policy.created - time.time()) < 60


async def test_a_kind_that_is_not_installed_has_no_objects_and_is_no_failure(session: Session):
    path = f"/apis/{GROUP}/{VERSION}/notinstalledyet"
    found = Reflector(session, path, CustomObject, optional=True)
    async with following(found):
        assert (len(found.store), found.stats.errors) == (0, 0)
        assert found.age() < 5
