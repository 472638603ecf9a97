"""Where a kind may be read in some namespaces only, each is listed and watched by itself, into one store."""

import asyncio
from contextlib import asynccontextmanager

from elastic_operator.cluster.namespaced import Namespaced
from elastic_operator.cluster.objects import CustomObject, Pod
from elastic_operator.cluster.reflector import PODS, in_namespace
from elastic_operator.cluster.store import Store
from elastic_operator.handlers import JobFeed
from tests.cluster_unit.build import pod_dict
from tests.cluster_unit.fake_api import FakeApi, at_rest, fake_api, session_to

JOBS = "/apis/elastic-pytorch.dev/v1beta1/namespaces/{}/elasticpytorchjobs/{}"


def path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


async def put(api: FakeApi, namespace: str, name: str) -> None:
    await api.put(path(namespace, name), pod_dict(name, namespace=namespace, uid=f"{namespace}-{name}"))


@asynccontextmanager
async def watching(api: FakeApi, *namespaces: str):
    async with session_to(api) as session:
        several = Namespaced(session, PODS, Pod, namespaces=namespaces)
        await several.catch_up()
        task = asyncio.create_task(several.run())
        try:
            yield several
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def names(store: Store) -> set[tuple[str, str]]:
    return {(one.metadata.namespace, one.metadata.name) for one in store}


async def test_only_the_namespaces_that_are_named_are_asked_for():
    async with fake_api() as api:
        for namespace in ("a", "b", "other"):
            await put(api, namespace, "first")
        async with watching(api, "a", "b", "a") as several:
            assert several.paths == (in_namespace(PODS, "a"), in_namespace(PODS, "b"))
            assert names(several.store) == {("a", "first"), ("b", "first")}
            await at_rest()
            assert several.stats.watches == 2
            await put(api, "b", "second")
            await put(api, "other", "second")
            await at_rest()
            assert ("b", "second") in names(several.store)
            assert several.age() < 1
    assert ("other", "second") not in names(several.store)


async def test_a_list_of_one_namespace_removes_nothing_of_another():
    async with fake_api() as api:
        await put(api, "a", "kept")
        await put(api, "b", "gone")
        async with watching(api, "a", "b") as several:
            await api.remove(path("b", "gone"), quietly=True)
            await several.catch_up()
            assert names(several.store) == {("a", "kept")}


async def test_jobs_are_listed_by_namespace_as_well():
    async with fake_api() as api, session_to(api) as session:
        for namespace in ("a", "b", "other"):
            body = {"spec": {}, "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}
            await api.put(JOBS.format(namespace, "toy"), body)
        feed = JobFeed(session._connection, session, Store[CustomObject](), namespaces=("a", "b"))
        await feed.catch_up()
        assert names(feed.store) == {("a", "toy"), ("b", "toy")}
        await api.remove(JOBS.format("a", "toy"), quietly=True)
        await feed.catch_up()
        assert names(feed.store) == {("b", "toy")}
