"""kopf asks without haste, and what it does not tell is found out beside it."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import pytest

from elastic_operator.cluster.lists import FIRST_LIST_SECONDS, PAGE, SETTLE_SECONDS
from elastic_operator.cluster.objects import CustomObject
from elastic_operator.cluster.reflector import in_namespace
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.wire import METADATA_ONLY
from elastic_operator.job_informer import (
    BETWEEN_SWEEPS_SECONDS,
    JOBS,
    LATEST_WATCH_SECONDS,
    WATCH_SECONDS,
    JobInformer,
)
from elastic_operator.watches import STALE_SECONDS
from tests.cluster_unit.fake_api import FakeApi, at_rest, hang, json
from tests.kit.tasks import running

JOBS_OF_A = in_namespace(JOBS, "a")


async def nobody(_take: Any) -> None:
    """A host that is not started."""


@asynccontextmanager
async def feeding(session: Session, *namespaces: str):
    """An informer whose kopf is the test."""
    informer = JobInformer(session, Store[CustomObject](), nobody, namespaces=namespaces)
    async with running(informer._sweep_forever()):
        await at_rest()
        assert informer.age() < inf
        yield informer


def put(api: FakeApi, name: str) -> dict:
    return api.put(f"{JOBS_OF_A}/{name}", {"spec": {}})


def listed(api: FakeApi, *jobs: Any, times: int = 1) -> None:
    """The next lists have these jobs."""
    api.fail("LIST", *(json({"metadata": {"resourceVersion": "9000"}, "items": jobs}) for _ in range(times)))


async def test_a_deletion_that_kopf_missed_is_found_out_when_it_lists(api, session):
    kept, gone = put(api, "kept"), put(api, "gone")
    async with feeding(session) as informer:
        assert len(informer.store) == 2
        api.remove(f"{JOBS_OF_A}/gone", quietly=True)
        informer.take_list()
        await asyncio.sleep(BETWEEN_SWEEPS_SECONDS)
        assert gone["metadata"]["uid"] not in informer.store
        assert kept["metadata"]["uid"] in informer.store


async def test_a_job_that_came_before_kopf_listed_is_found_out_then(api, session):
    async with feeding(session) as informer:
        put(api, "early")
        informer.take_list()
        await asyncio.sleep(BETWEEN_SWEEPS_SECONDS + 2 * SETTLE_SECONDS)
        assert [job.metadata.name for job in informer.store] == ["early"]


async def test_a_deletion_that_is_not_understood_is_found_out_by_a_list_at_once(api, session):
    gone = put(api, "gone")
    async with feeding(session) as informer:
        api.remove(f"{JOBS_OF_A}/gone", quietly=True)
        informer.take_event("DELETED", {"metadata": {"name": "gone"}})
        await asyncio.sleep(BETWEEN_SWEEPS_SECONDS)
        await at_rest()
        assert gone["metadata"]["uid"] not in informer.store


async def test_only_metadata_is_listed_while_the_store_lacks_nothing(api, session):
    """Thousands of whole jobs each minute would cost more than all else at rest."""
    put(api, "one")
    async with feeding(session) as informer:
        api.headers.clear()
        kept, gone = put(api, "kept"), put(api, "gone")
        informer.take_event("ADDED", kept)
        informer.take_event("ADDED", gone)
        api.remove(f"{JOBS_OF_A}/gone", quietly=True)
        await informer.catch_up()
        assert {job.metadata.name for job in informer.store} == {"one", "kept"}
        assert [METADATA_ONLY in headers["Accept"] for headers in api.headers] == [True]


async def test_a_store_of_jobs_has_seen_what_an_equal_store_has_seen(api, session):
    """kopf may report the newer of two edits first (213)."""
    older, newer = put(api, "one"), put(api, "two")
    async with feeding(session) as informer, feeding(session) as other:
        assert informer.has_seen(other.revisions())
        older, newer = put(api, "one"), put(api, "two")
        informer.take_event("MODIFIED", older)
        informer.take_event("MODIFIED", newer)
        other.take_event("MODIFIED", newer)
        assert not other.has_seen(informer.revisions())
        other.take_event("MODIFIED", older)
        assert other.has_seen(informer.revisions())
        informer.store.observe_deleted(older["metadata"]["uid"])
        assert not other.has_seen(informer.revisions())
        assert not other.has_seen({})


async def test_a_list_of_jobs_under_way_whose_pages_are_slow_is_not_repeated(api, session):
    async def late(request):
        await asyncio.sleep(0.6 * FIRST_LIST_SECONDS)
        return await api.answer(request)

    for number in range(2 * PAGE + 1):
        put(api, f"job-{number}")
    api.always["LIST"], since = late, time.monotonic()
    await asyncio.sleep(1)
    informer = JobInformer(session, Store[CustomObject](), hang)
    async with running(informer.run()):
        await asyncio.sleep(0)
        await informer.catch_up(since)
        assert len(informer.store) == 2 * PAGE + 1
        assert sum(verb == "LIST" for verb, *_ in api.seen) == 3


async def test_jobs_that_were_listed_since_the_time_in_question_are_not_listed_again(api, session):
    put(api, "one")
    since = time.monotonic()
    await asyncio.sleep(1)
    async with feeding(session) as informer:
        api.headers.clear()
        await informer.catch_up(since)
        assert api.headers == []
        await informer.catch_up()
        assert len(api.headers) == 1


async def test_a_slow_list_that_began_earlier_makes_the_store_no_older(api, session):
    async def late(request):
        await asyncio.sleep(9)
        return await api.answer(request)

    async with feeding(session) as informer:
        api.always["LIST"] = late
        slow = asyncio.create_task(informer.catch_up())
        await asyncio.sleep(1)
        del api.always["LIST"]
        since = time.monotonic()
        await asyncio.sleep(1)
        await informer.catch_up()
        await slow
        api.headers.clear()
        await informer.catch_up(since)
        assert api.headers == []


async def test_a_deletion_that_a_list_does_not_know_of_yet_is_not_asked_about_again(api, session):
    one, two = put(api, "one"), put(api, "two")
    async with feeding(session) as informer:
        api.headers.clear()
        informer.take_event("DELETED", {"metadata": {**two["metadata"], "resourceVersion": "8999"}})
        listed(api, one, two)
        await informer.catch_up()
        assert {job.metadata.name for job in informer.store} == {"one"}
        assert len(api.headers) == 1


async def test_changes_that_kopf_missed_are_found_out_with_a_list_of_whole_jobs(api, session):
    put(api, "one")
    async with feeding(session) as informer:
        api.headers.clear()
        changed = api.put(f"{JOBS_OF_A}/one", {"spec": {"minReplicas": 2}})
        put(api, "new")
        await informer.catch_up()
        assert {job.metadata.name for job in informer.store} == {"one", "new"}
        assert informer.store.get(changed["metadata"]["uid"]).spec.unpack() == {"minReplicas": 2}
        assert [METADATA_ONLY in headers["Accept"] for headers in api.headers] == [True, False]


ODD: dict[str, Any] = {
    "no metadata": {"spec": {}},
    "no uid": {"metadata": {"name": "odd", "resourceVersion": "7"}},
    "a version that is no number": {"metadata": {"name": "odd", "uid": "u", "resourceVersion": "new"}},
    "metadata of another type": {"metadata": []},
    "no object": 5,
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
async def test_a_job_that_cannot_be_read_ends_nothing_hides_no_other_and_is_counted(api, session, odd):
    put(api, "one")
    async with feeding(session) as informer:
        errors: list[str] = []
        informer.store.on_error = lambda: errors.append("one")
        for type_ in ("ADDED", "DELETED"):
            informer.take_event(type_, odd)
        assert len(errors) == 2
        listed(api, put(api, "one"), odd, put(api, "two"), times=2)
        await informer.catch_up()
        assert {job.metadata.name for job in informer.store} == {"one", "two"}


async def test_a_job_that_cannot_be_read_any_more_is_known_as_it_last_was(api, session):
    job = put(api, "one")
    async with feeding(session) as informer:
        listed(api, {"metadata": {**job["metadata"], "resourceVersion": "8999"}, "spec": "odd"}, times=2)
        await informer.catch_up()
        assert informer.store.get(job["metadata"]["uid"]).spec.unpack() == {}


async def test_a_job_that_cannot_be_read_any_more_and_is_to_be_deleted_is_not_run_on(api, session):
    job = put(api, "one")
    async with feeding(session) as informer:
        going = {**job["metadata"], "resourceVersion": "9001", "deletionTimestamp": "2027-01-15T08:00:00Z"}
        informer.take_event("MODIFIED", {"metadata": going, "spec": "odd"})
        assert informer.store.get(job["metadata"]["uid"]).metadata.deletion_timestamp is not None


async def test_a_list_that_is_none_is_asked_for_again(api, session):
    async with feeding(session) as informer:
        api.fail("LIST", json({}), json({"items": []}), json({"items": 5, "metadata": {"resourceVersion": "900"}}))
        await informer.catch_up()
        assert informer.stats.errors == 3


@pytest.mark.parametrize("namespaces", [(), ("a", "b")])
async def test_while_kopf_s_watches_are_answered_a_slow_list_does_not_make_the_store_old(api, session, namespaces):
    """Nothing was created, and no pod was evicted, until the list had come."""
    async with feeding(session, *namespaces) as informer:
        api.always["LIST"] = hang
        for _ in range(5):
            await asyncio.sleep(WATCH_SECONDS)
            assert informer.age() < STALE_SECONDS
            for namespace in namespaces or ("",):
                informer.take_answer(namespace)
            assert informer.age() == 0


async def test_after_kopf_has_listed_its_watch_makes_nothing_new_before_the_jobs_are_compared(api, session):
    """kopf lists where its watch could not go on, and does not report what it has missed."""
    async with feeding(session) as informer:
        api.always["LIST"] = hang
        await asyncio.sleep(STALE_SECONDS)
        informer.take_list()
        informer.take_answer("")
        assert informer.age() >= STALE_SECONDS
        del api.always["LIST"]
        await informer.catch_up()
        assert informer.age() < 1
        await asyncio.sleep(WATCH_SECONDS)
        informer.take_answer("")
        assert informer.age() == 0


async def test_the_store_is_old_if_one_namespace_s_watch_is_silent_whatever_another_receives(api, session):
    async with feeding(session, "a", "b") as informer:
        api.always["LIST"] = hang
        await asyncio.sleep(STALE_SECONDS)
        informer.take_answer("a")
        informer.take_event("ADDED", put(api, "new"))
        assert informer.age() >= STALE_SECONDS


async def test_many_lists_of_kopf_cost_few_of_ours(api, session):
    put(api, "one")
    async with feeding(session) as informer:
        for _ in range(100):
            informer.take_list()
            await asyncio.sleep(0.045)
        assert api.moments["LIST"] == [0, 1, 2, 3, 4]


async def test_catching_up_waits_until_the_server_answers(api, session):
    async with feeding(session) as informer:
        api.fail("LIST", 500, 403)
        job = put(api, "new")
        async with asyncio.timeout(1.2 * (0.5 + 1)):
            await informer.catch_up()
        assert job["metadata"]["uid"] in informer.store
        assert informer.stats.errors == 2


@pytest.mark.parametrize("decided", [True, False])
async def test_kopf_starts_after_the_first_pass_or_some_seconds_later(session, decided):
    """Its own list would take CPU from the first decisions. A standby makes none."""
    started = list[float]()

    async def host(_take: Any) -> None:
        started.append(asyncio.get_running_loop().time())
        await asyncio.Event().wait()

    informer = JobInformer(session, Store[CustomObject](), host)
    begun = asyncio.get_running_loop().time()
    async with running(informer.run()):
        await asyncio.sleep(LATEST_WATCH_SECONDS - 1)
        assert not started
        if decided:
            informer.decided()
        await asyncio.sleep(0.5)
        assert bool(started) == decided
        await asyncio.sleep(1)
        assert [round(at - begun, 1) for at in started] == [LATEST_WATCH_SECONDS - decided]
