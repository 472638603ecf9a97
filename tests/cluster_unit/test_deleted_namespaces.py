"""A namespace of `watchNamespaces` is deleted, or loses its Role: the others are served as before."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web

from elastic_operator.cluster.objects import CustomObject
from elastic_operator.cluster.reflector import ABSENT_SECONDS, NAMESPACES, SERVICES, in_namespace
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.job_informer import BETWEEN_SWEEPS_SECONDS, FORBIDDEN_SECONDS, JOBS, SWEEP_SECONDS, JobInformer
from elastic_operator.watches import STALE_SECONDS, Watches, watch_all
from elastic_worker import contract
from tests.cluster_unit.fake_api import FakeApi, at_rest, status
from tests.cluster_unit.test_job_informer import nobody
from tests.kit.tasks import running

A_LONG_TIME = 5 * STALE_SECONDS


class Roles:
    """The namespaces in which the operator has no Role: lists and watches there are answered 403."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.missing: set[str] = set()
        self.sees_namespaces = True
        api.always |= {"LIST": self.answer, "WATCH": self.answer}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """403 without a Role."""
        if not self.sees_namespaces and request.path == NAMESPACES:
            return status(403)
        if any(f"/namespaces/{namespace}/" in request.path for namespace in self.missing):
            return status(403)
        return await self.api.answer(request)

    def remove(self, namespace: str) -> None:
        """Remove the Role; the watches there end."""
        self.missing.add(namespace)
        self.api.cut()


@pytest.fixture
def roles(api: FakeApi) -> Roles:
    """The operator's Roles; none is missing."""
    return Roles(api)


def put(api: FakeApi, namespace: str, name: str) -> None:
    """A job and its service."""
    api.put(f"{in_namespace(JOBS, namespace)}/{name}", {"spec": {}})
    service = {"metadata": {"labels": {contract.LABEL_JOB_UID: name}}}
    api.put(f"{in_namespace(SERVICES, namespace)}/{name}", service)


def delete_namespace(api: FakeApi, roles: Roles, name: str) -> None:
    """Delete the namespace with all that is in it; no watch says so, because the Role is gone first."""
    roles.remove(name)
    for kind in (JOBS, SERVICES):
        api.remove(f"{in_namespace(kind, name)}/toy", quietly=True)
    api.remove(f"{NAMESPACES}/{name}")


def make_watches(session: Session, *namespaces: str) -> Watches:
    """The watches of an operator that serves these namespaces, all if none is named. Nobody runs them yet."""
    return watch_all(
        session, JobInformer(session, Store[CustomObject](), nobody, namespaces=namespaces), watched=namespaces
    )


@asynccontextmanager
async def watching(session: Session, *namespaces: str):
    watches = make_watches(session, *namespaces)
    await watches.catch_up()
    async with AsyncExitStack() as tasks:
        for kind, of_kind in watches.all.items():
            for watch in of_kind:
                await tasks.enter_async_context(running(watch._sweep_forever() if kind == "jobs" else watch.run()))
        await at_rest()
        yield watches


def names(store: Store) -> set[tuple[str, str]]:
    return {(one.metadata.namespace, one.metadata.name) for one in store}


def seen(watches: Watches) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """The jobs and services in the stores."""
    return names(watches.informer.store), names(watches.stores["services"])


async def test_the_stores_stay_fresh_when_a_served_namespace_is_deleted(api, session, roles):
    for namespace in ("a", "b"):
        put(api, namespace, "toy")
    async with watching(session, "a", "b") as watches:
        assert seen(watches) == ({("a", "toy"), ("b", "toy")},) * 2
        delete_namespace(api, roles, "a")
        await asyncio.sleep(A_LONG_TIME)
        assert watches.fresh()
        assert seen(watches) == ({("b", "toy")},) * 2


async def test_a_new_leader_catches_up_although_a_served_namespace_does_not_exist(api, session, roles):
    for namespace in ("a", "b"):
        put(api, namespace, "toy")
    delete_namespace(api, roles, "a")
    watches = make_watches(session, "a", "b")
    async with asyncio.timeout(STALE_SECONDS):
        await watches.catch_up()
    assert watches.fresh()
    assert seen(watches) == ({("b", "toy")},) * 2


async def test_a_namespace_that_is_created_again_is_watched_again(api, session, roles):
    put(api, "a", "toy")
    async with watching(session, "a", "b") as watches:
        delete_namespace(api, roles, "a")
        await asyncio.sleep(A_LONG_TIME)
        api.put(f"{NAMESPACES}/a", {})
        roles.missing.clear()
        put(api, "a", "new")
        await asyncio.sleep(max(SWEEP_SECONDS, ABSENT_SECONDS) + BETWEEN_SWEEPS_SECONDS)
        assert seen(watches) == ({("a", "new")},) * 2
        put(api, "a", "newer")
        await at_rest()
        assert ("a", "newer") in names(watches.stores["services"])


async def test_a_namespace_stuck_in_its_deletion_does_not_make_the_stores_stale(api, session, roles):
    """A finalizer may keep the namespace for days, and the Role in it is gone at once."""
    put(api, "b", "toy")
    async with watching(session, "a", "b") as watches:
        roles.remove("a")
        api.put(f"{NAMESPACES}/a", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        await asyncio.sleep(A_LONG_TIME)
        assert watches.fresh()


async def test_a_namespace_without_a_role_counts_as_not_served_and_the_others_stay_fresh(api, session, roles):
    for namespace in ("a", "b"):
        put(api, namespace, "toy")
    async with watching(session, "a", "b") as watches:
        roles.remove("a")
        await asyncio.sleep(FORBIDDEN_SECONDS / 2)
        assert seen(watches) == ({("a", "toy"), ("b", "toy")},) * 2, "a Role may be missing for a moment"
        api.remove(f"{in_namespace(JOBS, 'b')}/toy", quietly=True)
        await asyncio.sleep(A_LONG_TIME)
        assert watches.fresh()
        assert seen(watches) == (set(), {("b", "toy")})


async def test_unchanged_objects_are_served_again_when_the_role_is_back(api, session, roles):
    put(api, "a", "toy")
    async with watching(session, "a", "b") as watches:
        roles.remove("a")
        await asyncio.sleep(A_LONG_TIME)
        assert seen(watches) == (set(), set())
        roles.missing.clear()
        await asyncio.sleep(max(SWEEP_SECONDS, ABSENT_SECONDS) + BETWEEN_SWEEPS_SECONDS)
        assert seen(watches) == ({("a", "toy")},) * 2
        assert watches.fresh()


async def test_new_leader_does_not_wait_forever_for_a_namespace_without_a_role(api, session, roles):
    for namespace in ("a", "b"):
        put(api, namespace, "toy")
    roles.remove("a")
    watches = make_watches(session, "a", "b")
    async with running(watches.all["namespaces"][0].run()):
        async with asyncio.timeout(2 * STALE_SECONDS):
            await watches.catch_up()
    assert watches.fresh()
    assert seen(watches) == ({("b", "toy")},) * 2


async def test_a_namespace_is_not_taken_for_deleted_by_namespaces_that_are_out_of_date(api, session, roles):
    async with watching(session, "a", "b") as watches:
        api.remove(f"{NAMESPACES}/a")
        await at_rest()
        roles.sees_namespaces = False
        api.cut()
        api.put(f"{NAMESPACES}/a", {})
        put(api, "a", "toy")
        await asyncio.sleep(A_LONG_TIME)
        roles.remove("a")
        await asyncio.sleep(A_LONG_TIME)
        assert seen(watches) == ({("a", "toy")},) * 2


@pytest.mark.parametrize("answer", [403, 404])
async def test_jobs_of_all_namespaces_are_kept_while_the_list_of_all_is_refused(api, session, answer):
    put(api, "a", "toy")
    async with watching(session) as watches:
        api.always["LIST"] = answer
        await asyncio.sleep(STALE_SECONDS)
        assert names(watches.informer.store) == {("a", "toy")}
