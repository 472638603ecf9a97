"""Where a kind may be read in some namespaces only, each is listed and watched by itself, into one store."""

from collections.abc import Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from elastic_operator.cluster.objects import CustomObject
from elastic_operator.cluster.reflector import SERVICES, in_namespace
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.job_informer import JOBS, JobInformer
from elastic_operator.watches import Watch, watch_all
from elastic_worker import contract
from tests.cluster_unit.fake_api import FakeApi, at_rest
from tests.cluster_unit.test_job_informer import nobody
from tests.kit.tasks import running


def path(namespace: str, name: str, kind: str = SERVICES) -> str:
    return f"{in_namespace(kind, namespace)}/{name}"


def put(api: FakeApi, namespace: str, name: str) -> None:
    api.put(path(namespace, name), {"metadata": {"labels": {contract.LABEL_JOB_UID: name}}})


async def catch_up(watches: Sequence[Watch]) -> None:
    for watch in watches:
        await watch.catch_up()


@asynccontextmanager
async def watching(session: Session, *namespaces: str):
    """The watches of services."""
    watches = watch_all(session, JobInformer(session, Store[CustomObject](), nobody), watched=namespaces)
    services = watches.all["services"]
    await catch_up(services)
    async with AsyncExitStack() as tasks:
        for watch in services:
            await tasks.enter_async_context(running(watch.run()))
        yield services


def names(store: Store) -> set[tuple[str, str]]:
    return {(one.metadata.namespace, one.metadata.name) for one in store}


async def test_only_the_namespaces_that_are_named_are_asked_for(api, session):
    for namespace in ("a", "b", "other"):
        put(api, namespace, "first")
    async with watching(session, "a", "b", "a") as several:
        assert [watch.paths for watch in several] == [(in_namespace(SERVICES, "a"),), (in_namespace(SERVICES, "b"),)]
        assert names(several[0].store) == {("a", "first"), ("b", "first")}
        await at_rest()
        assert api.requests["WATCH"] == 2
        put(api, "b", "second")
        put(api, "other", "second")
        await at_rest()
        assert ("b", "second") in names(several[0].store)
        assert max(watch.age() for watch in several) < 1
    assert ("other", "second") not in names(several[0].store)


async def test_a_list_of_one_namespace_removes_nothing_of_another(api, session):
    put(api, "a", "kept")
    put(api, "b", "gone")
    async with watching(session, "a", "b") as several:
        api.remove(path("b", "gone"), quietly=True)
        await catch_up(several)
        assert names(several[0].store) == {("a", "kept")}


async def test_jobs_are_listed_by_namespace_as_well(api, session):
    for namespace in ("a", "b", "other"):
        api.put(path(namespace, "toy", JOBS), {"spec": {}})
    informer = JobInformer(session, Store[CustomObject](), nobody, namespaces=("a", "b"))
    await informer.catch_up()
    assert names(informer.store) == {("a", "toy"), ("b", "toy")}
    api.remove(path("a", "toy", JOBS), quietly=True)
    await informer.catch_up()
    assert names(informer.store) == {("b", "toy")}
