"""The store equals the server's state whatever happens to lists and watches, and no fault becomes a busy loop."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from itertools import pairwise

import msgspec
import pytest
from aiohttp import web

from elastic_operator.cluster import lists
from elastic_operator.cluster.lists import FIRST_LIST_SECONDS, SETTLE_SECONDS
from elastic_operator.cluster.objects import CustomObject, Pod
from elastic_operator.cluster.reflector import ABSENT_SECONDS, INACTIVITY_SECONDS, PODS, Reflector
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.wire import METADATA_ONLY
from tests.cluster_unit.build import pod_dict
from tests.cluster_unit.fake_api import FakeApi, at_rest, hang, json, session_to, status
from tests.kit.tasks import running


def path(name: str) -> str:
    return f"/api/v1/namespaces/a/pods/{name}"


def put(api: FakeApi, name: str, **fields) -> None:
    api.put(path(name), pod_dict(name, **fields))


def pauses(api: FakeApi) -> list[float]:
    """Seconds between the watches."""
    return [later - earlier for earlier, later in pairwise(api.moments["WATCH"])]


def names(reflector: Reflector[Pod]) -> set[str]:
    return {obj.metadata.name for obj in reflector.store}


@asynccontextmanager
async def reflecting(api: FakeApi, *, pods: int = 0):
    """A reflector that has synced and watches, or has tried to; `pods` there already are."""
    for i in range(pods):
        put(api, f"p{i}")
    async with session_to(api) as session:
        reflector = Reflector(session, PODS, Pod)
        async with running(reflector.run()):
            async with asyncio.timeout(60):
                await reflector.synced.wait()
            await at_rest()
            yield reflector


async def test_a_store_has_seen_the_revisions_up_to_its_newest_object(api):
    async with reflecting(api, pods=3) as reflector:
        newest = reflector.revisions()[PODS]
        assert newest == max(int(pod.metadata.resource_version) for pod in reflector.store)
        assert [reflector.has_seen({PODS: newest + more}) for more in (-1, 0, 1)] == [True, True, False]
        assert not reflector.has_seen({})
        put(api, "one-more")
        await at_rest()
        assert reflector.has_seen({PODS: newest + 1})


async def test_a_deletion_is_a_change_that_a_store_must_have_seen(api):
    async with reflecting(api, pods=3) as leader, reflecting(api) as standby, session_to(api) as session:
        without_watch = Reflector(session, PODS, Pod)
        await without_watch.catch_up()
        assert without_watch.has_seen(leader.revisions())
        api.remove(path("p2"))
        await at_rest()
        assert standby.has_seen(leader.revisions())
        assert not without_watch.has_seen(leader.revisions())


async def test_a_deletion_that_a_list_finds_is_a_change_too(api):
    async with reflecting(api, pods=3) as reflector:
        before = reflector.revisions()[PODS]
        api.silent = True
        api.remove(path("p0"))
        await at_rest()
        assert reflector.revisions()[PODS] == before
        await reflector.catch_up()
        assert reflector.revisions()[PODS] == api.server.revision > before


async def test_a_store_without_a_watch_has_not_seen_what_its_own_writes_say(api):
    async with reflecting(api, pods=3) as reflector, session_to(api) as session:
        without_watch = Reflector(session, PODS, Pod)
        await without_watch.catch_up()
        put(api, "other")
        put(api, "own")
        await at_rest()
        without_watch.store.observe(reflector.store.named("own", "a"))
        assert not without_watch.has_seen(reflector.revisions())


async def test_a_store_has_seen_nothing_while_its_objects_are_listed(api):
    async with reflecting(api, pods=3) as reflector:
        newest = reflector.revisions()
        assert reflector.has_seen(newest)
        api.fail("WATCH", status(410, "Expired"))
        api.always["LIST"] = hang
        api.cut()
        await asyncio.sleep(5)
        assert not reflector.has_seen(newest)


async def test_a_store_without_its_first_list_has_seen_nothing(session):
    assert not Reflector(session, PODS, Pod).has_seen({PODS: 0})


async def test_a_list_comes_in_pages_and_the_watch_goes_on_from_it(api, monkeypatch):
    monkeypatch.setattr(lists, "PAGE", 3)
    async with reflecting(api, pods=7) as reflector:
        assert api.requests["LIST"] == 3
        assert len(reflector.store) == 7
        put(api, "new")
        put(api, "p0", phase="Failed")
        api.remove(path("p1"))
        await at_rest()
        assert names(reflector) == {"new", "p0", "p2", "p3", "p4", "p5", "p6"}
        assert reflector.store.named("p0", "a").status.phase == "Failed"
        assert api.requests["LIST"] == 3


async def test_before_the_first_list_the_age_is_infinite_and_afterwards_small(api, session):
    assert Reflector(session, PODS, Pod).age() == math.inf
    api.silent = True
    async with reflecting(api) as reflector:
        heard = time.monotonic() - reflector.age()
        await asyncio.sleep(INACTIVITY_SECONDS - 1)
        assert reflector.age() == time.monotonic() - heard


@pytest.mark.parametrize("as_event", [False, True])
async def test_deletions_missed_before_a_410_are_told_once_and_nothing_else_is(api, as_event):
    async with reflecting(api, pods=50) as reflector:
        told = []
        reflector.store.subscribe(lambda old, new: told.append((old, new)))
        told.clear()
        for i in range(30):
            api.remove(path(f"p{i}"), quietly=True)
        if as_event:
            api.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
        else:
            api.fail("WATCH", 410)
            api.cut()
        await asyncio.sleep(5)
        assert len(reflector.store) == 20
        assert api.requests["WATCH"] == (2 if as_event else 3)
        assert len(told) == 30
        assert all(new is None for _, new in told)
        assert reflector.stats.relists == 1


async def test_the_next_page_of_a_list_is_requested_before_the_caller_reads_the_present_one(api, session, monkeypatch):
    monkeypatch.setattr(lists, "PAGE", 1)
    for name in ("p0", "p1", "p2"):
        put(api, name)
    requested, when_read = 0, []

    async def count(request):
        nonlocal requested
        requested += 1
        return await api.answer(request)

    api.always["LIST"] = count
    async for _ in lists.pages(session, "/api/v1/pods"):
        await asyncio.sleep(1)
        when_read.append(requested)
    assert when_read == [2, 3, 3]


async def test_an_expired_continue_token_starts_the_list_again(api, monkeypatch):
    monkeypatch.setattr(lists, "PAGE", 3)
    for i in range(5):
        put(api, f"p{i}")
    calls = iter((None, 410))

    async def second_page_expires(request):
        code = next(calls, None)
        return status(code) if code else await api.answer(request)

    api.fail("LIST", second_page_expires, second_page_expires)
    async with reflecting(api) as reflector:
        assert len(reflector.store) == 5
        assert api.requests["LIST"] == 4


@pytest.mark.parametrize("code", [403, 429, 500])
async def test_a_watch_that_is_refused_is_tried_ever_more_slowly_and_then_goes_on(api, code):
    api.always["WATCH"] = code
    async with reflecting(api, pods=1) as reflector:
        await asyncio.sleep(300)
        for pause, least in zip(pauses(api), [0.5, 1, 2, 4, 8, 16, *[30] * 20], strict=False):
            assert least <= pause <= 1.2 * least
        assert len(pauses(api)) > 10
        del api.always["WATCH"]
        put(api, "new")
        await asyncio.sleep(36)
        assert "new" in names(reflector)


async def test_the_server_s_wish_to_wait_is_granted(api):
    api.fail("WATCH", status(429, **{"Retry-After": "20"}))
    async with reflecting(api):
        await asyncio.sleep(25)
        (pause,) = pauses(api)
        assert 20 <= pause <= 1.2 * 20


async def test_an_error_event_that_is_no_410_resumes_without_a_new_list(api):
    async with reflecting(api, pods=1) as reflector:
        api.send("ERROR", {"kind": "Status", "code": 500, "message": "etcd hiccup"})
        put(api, "new")
        await asyncio.sleep(1)
        assert "new" in names(reflector)
        assert api.requests["LIST"] == 1


async def test_a_silent_stream_is_given_up_and_resumed(api):
    async with reflecting(api, pods=1) as reflector:
        api.silent = True
        put(api, "missed")
        await asyncio.sleep(INACTIVITY_SECONDS - 1)
        api.silent = False
        assert api.requests["WATCH"] == 1
        assert "missed" not in names(reflector)
        await asyncio.sleep(2)
        assert api.requests["WATCH"] == 2
        assert "missed" in names(reflector)


async def test_a_kind_of_which_nothing_is_ever_said_stays_fresh(api):
    async with reflecting(api) as reflector:
        api.silent = True
        for _ in range(60):
            await asyncio.sleep(10)
            assert reflector.age() <= INACTIVITY_SECONDS
        assert api.requests["WATCH"] == 1 + 600 // INACTIVITY_SECONDS
        assert api.requests["LIST"] == 1 + (api.requests["WATCH"] - 1) // 3
        assert reflector.stats.errors == 0


async def test_a_broken_stream_is_resumed_from_where_it_was(api):
    async with reflecting(api, pods=2) as reflector:
        api.cut()
        put(api, "new")
        await asyncio.sleep(1)
        assert "new" in names(reflector)
        assert api.requests["LIST"] == 1


async def test_watches_that_end_at_once_are_no_busy_loop(api):
    async def ends(_request):
        return web.Response(body=b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"500"}}}\n')

    api.always["WATCH"] = ends
    async with reflecting(api):
        await asyncio.sleep(10)
        assert all(0.5 <= pause <= 1.2 * 0.5 for pause in pauses(api))


async def test_lists_that_fail_are_no_busy_loop_and_the_first_that_works_syncs(api):
    api.fail("LIST", 500, 403, 429)
    async with reflecting(api, pods=2) as reflector:
        assert api.requests["LIST"] == 4
        assert len(reflector.store) == 2


async def test_a_bookmark_moves_the_point_to_resume_from(api):
    async with reflecting(api, pods=1):
        api.send("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "4711"}})
        await at_rest()
        api.cut()
        await asyncio.sleep(1)
        watches = [query for verb, _, query, _ in api.seen if verb == "WATCH"]
        assert watches[1]["resourceVersion"] == "4711"
        assert watches[1]["allowWatchBookmarks"] == "true"


async def test_a_resource_version_that_no_watch_accepts_is_given_up(api):
    async with reflecting(api, pods=1) as reflector:
        put(api, "missed")
        await at_rest()
        assert "missed" in names(reflector)
        api.fail("WATCH", 504, 504, 504)
        api.cut()
        await asyncio.sleep(20)
        assert api.requests["LIST"] == 2


async def test_one_object_that_cannot_be_read_does_not_blind_us_for_the_others(api, caplog):
    api.put(path("odd"), pod_dict("odd") | {"spec": {"containers": 5}})
    async with reflecting(api, pods=2) as reflector:
        errors: list[str] = []
        reflector.store.on_error = lambda: errors.append("one")
        api.put(path("odd"), pod_dict("odd") | {"spec": {"containers": 6}})
        put(api, "new")
        await at_rest()
        assert names(reflector) == {"p0", "p1", "new"}
        assert len(errors) == 1
        assert "odd" in caplog.text


async def test_objects_split_over_chunks_are_put_together(api):
    async def crumbs(request):
        response = web.StreamResponse()
        await response.prepare(request)
        body = pod_dict("big", rv=900)
        event = json({"type": "ADDED", "object": body}).body + b"\n"
        for i in range(0, len(event), 100):
            await response.write(event[i : i + 100])
            await asyncio.sleep(0)
        await asyncio.sleep(3600)
        return response

    api.fail("WATCH", crumbs)
    async with reflecting(api) as reflector:
        assert "big" in names(reflector)


async def test_a_server_restored_from_a_backup_is_believed_without_a_moment_of_knowing_nothing(api, monkeypatch):
    monkeypatch.setattr(lists, "PAGE", 2)
    async with reflecting(api, pods=3) as reflector:
        kept = [api.find(path(name)) for name in ("p0", "p1")]
        api.server.revision = 10
        api.server.objects["pods"].clear()
        api.memory.forget()
        for pod in kept:
            api.server.replace("pods", pod, pod)
        put(api, "restored")
        seen_between_pages = []

        async def second_page(request):
            if "continue" in request.query:
                seen_between_pages.append(names(reflector))
            return await api.answer(request)

        api.always["LIST"] = second_page
        api.fail("WATCH", 410)
        api.cut()
        await asyncio.sleep(5)
        assert names(reflector) == {"p0", "p1", "restored"}
        assert seen_between_pages == [{"p0", "p1", "p2"}]
        assert int(reflector.store.named("p0", "a").metadata.resource_version) < 20


async def test_an_answer_to_a_write_that_overtakes_the_watch_is_kept(api):
    async with reflecting(api, pods=1) as reflector:
        api.silent = True
        put(api, "written")
        reflector.store.observe(reflector._decode(json(api.find(path("written"))).body))
        assert "written" in names(reflector)
        api.silent = False
        api.cut()
        put(api, "later")
        await asyncio.sleep(1)
        assert "later" in names(reflector)
        assert "written" in names(reflector)


async def test_a_listener_that_fails_does_not_end_the_watch(api, caplog):
    async with reflecting(api) as reflector:

        def fails(_old, new):
            if new.metadata.name == "cursed":
                raise RuntimeError("boom")

        reflector.store.subscribe(fails)
        put(api, "cursed")
        put(api, "new")
        await asyncio.sleep(1)
        assert "new" in names(reflector)
        assert "boom" in caplog.text


async def test_catching_up_takes_in_what_a_silent_watch_has_missed(api):
    async with reflecting(api, pods=3) as reflector:
        api.silent = True
        put(api, "new")
        api.remove(path("p0"))
        await at_rest()
        assert names(reflector) == {"p0", "p1", "p2"}
        api.fail("LIST", 500, 429)
        async with asyncio.timeout(1.2 * (0.5 + 1) + SETTLE_SECONDS):
            await reflector.catch_up()
        assert names(reflector) == {"new", "p1", "p2"}


NO_LIST = [
    b"<html>Welcome</html>",
    b'{"metadata": {"resourceVersion": "1"}, "items": [{"meta',
    b'{"items": []}',
    b'{"metadata": {"resourceVersion": "new"}, "items": []}',
    b"\xff",
]
"""A gateway's own page, a list that is cut, two without a number as their version, and no text at all."""


@pytest.mark.parametrize("body", NO_LIST)
@pytest.mark.parametrize("synced", [True, False])
async def test_catching_up_goes_on_after_an_answer_that_is_no_list(api, session, body, synced):
    put(api, "p0")
    reflector = Reflector(session, PODS, Pod)
    if synced:
        await reflector.catch_up()
        put(api, "new")
    api.fail("LIST", web.Response(body=body), web.Response(body=body))
    async with asyncio.timeout(1.2 * (0.5 + 1) + SETTLE_SECONDS):
        await reflector.catch_up()
    assert names(reflector) == ({"p0", "new"} if synced else {"p0"})


def whole_lists(api: FakeApi) -> list[bool]:
    """Of each list, whether it had whole objects."""
    return [METADATA_ONLY not in headers.get("Accept", "") for headers in api.headers if "json" in headers["Accept"]]


async def test_catching_up_reads_only_metadata_where_the_watch_has_brought_everything_else(api, monkeypatch):
    monkeypatch.setattr(lists, "PAGE", 3)
    async with reflecting(api, pods=7) as reflector:
        api.headers.clear()
        api.remove(path("p0"), quietly=True)
        await reflector.catch_up()
        assert names(reflector) == {f"p{i}" for i in range(1, 7)}
        assert whole_lists(api) == [False, False]


async def test_catching_up_waits_a_moment_for_what_the_watch_is_about_to_bring(api):
    async with reflecting(api, pods=1) as reflector:
        api.headers.clear()
        api.silent = True
        put(api, "new")
        catching_up = asyncio.create_task(reflector.catch_up())
        await asyncio.sleep(SETTLE_SECONDS / 2)
        reflector._on_event(msgspec.json.encode({"type": "ADDED", "object": api.find(path("new"))}))
        await catching_up
        assert names(reflector) == {"p0", "new"}
        assert whole_lists(api) == [False]


async def test_a_leader_that_has_just_started_waits_for_the_list_under_way(api, session):
    for i in range(3):
        put(api, f"p{i}")
    reflector = Reflector(session, PODS, Pod)
    async with running(reflector.run()):
        await asyncio.sleep(0)
        await reflector.catch_up()
        assert names(reflector) == {"p0", "p1", "p2"}
        assert sum(whole_lists(api)) <= 2  # one list, one watch


async def test_a_list_under_way_whose_pages_are_slow_is_not_repeated(api, session, monkeypatch):
    monkeypatch.setattr(lists, "PAGE", 2)

    async def late(request):
        await asyncio.sleep(0.6 * FIRST_LIST_SECONDS)
        return await api.answer(request)

    for i in range(8):
        put(api, f"p{i}")
    api.always["LIST"] = late
    reflector, since = Reflector(session, PODS, Pod), time.monotonic()
    await asyncio.sleep(1)
    async with running(reflector.run()):
        await asyncio.sleep(0)
        await reflector.catch_up(since)
        assert len(names(reflector)) == 8
        assert sum(verb == "LIST" for verb, *_ in api.seen) == 4


async def test_a_list_under_way_that_brings_no_page_is_not_waited_for(api, session):
    async def never(_request):
        await asyncio.sleep(10 * FIRST_LIST_SECONDS)

    put(api, "p0")
    api.fail("LIST", never)
    reflector = Reflector(session, PODS, Pod)
    began = time.monotonic()
    async with running(reflector.run()):
        await asyncio.sleep(0)
        await reflector.catch_up()
        assert names(reflector) == {"p0"}
        assert time.monotonic() - began < 1.1 * FIRST_LIST_SECONDS  # virtual time


async def test_what_was_listed_since_the_time_in_question_is_not_compared(api, session):
    put(api, "p0")
    reflector, since = Reflector(session, PODS, Pod), time.monotonic()
    await asyncio.sleep(1)
    async with running(reflector.run()):
        await at_rest()
        api.headers.clear()
        await reflector.catch_up(since)
        assert api.headers == []
        await reflector.catch_up()
        assert whole_lists(api) == [False]


async def test_a_history_that_restarted_is_found_out_when_catching_up(api):
    async with reflecting(api, pods=2) as reflector:
        api.silent = True
        reflector._highest = 10**9
        await reflector.catch_up()
        assert reflector._highest < 10**9
        assert names(reflector) == {"p0", "p1"}


POLICIES = "/apis/elastic-pytorch.dev/v1beta1/gpuquotapolicies"


@asynccontextmanager
async def reflecting_optional(session: Session):
    """A reflector of a kind that need not be there."""
    reflector = Reflector(session, POLICIES, CustomObject, optional=True)
    async with running(reflector.run()):
        await at_rest()
        yield reflector


async def test_an_optional_kind_that_is_not_served_has_no_objects_and_is_fresh_until_it_comes(api, session):
    api.always["LIST"] = 404
    async with reflecting_optional(session) as reflector:
        assert reflector.synced.is_set()
        await reflector.catch_up()
        for _ in range(100):
            await asyncio.sleep(1)
            assert reflector.age() <= ABSENT_SECONDS
        assert len(reflector.store) == 0
        assert reflector.stats.errors == 0
        api.put(f"{POLICIES}/a", {"metadata": {}, "spec": {}})
        del api.always["LIST"]
        await asyncio.sleep(ABSENT_SECONDS)
        assert reflector.store.named("a") is not None
        api.put(f"{POLICIES}/b", {"metadata": {}, "spec": {}})
        await at_rest()
        assert reflector.store.named("b") is not None


async def test_when_an_optional_kind_is_removed_its_objects_are_gone(api, session):
    api.put(f"{POLICIES}/a", {"metadata": {}, "spec": {}})
    async with reflecting_optional(session) as reflector:
        assert reflector.store.named("a") is not None
        api.always |= {"LIST": 404, "WATCH": 404}
        api.cut()
        await asyncio.sleep(1)
        assert len(reflector.store) == 0
        assert reflector.age() < 1


async def test_objects_of_an_optional_kind_return_unchanged_after_a_moment_without_the_kind(api, session):
    """An API server that starts may answer 404 before it has read the definitions."""
    api.put(f"{POLICIES}/a", {"metadata": {}, "spec": {}})
    async with reflecting_optional(session) as reflector:
        api.always |= {"LIST": 404, "WATCH": 404}
        api.cut()
        await asyncio.sleep(1)
        assert len(reflector.store) == 0
        api.always.clear()
        await asyncio.sleep(ABSENT_SECONDS)
        assert reflector.store.named("a") is not None


async def test_a_kind_that_must_be_there_and_is_not_served_is_never_fresh(api, session):
    api.always["LIST"] = 404
    reflector = Reflector(session, PODS, Pod)
    async with running(reflector.run()):
        await asyncio.sleep(10)
        assert reflector.stats.errors > 1
        assert reflector.age() == math.inf
        assert not reflector.synced.is_set()
