"""The store equals the server's state whatever happens to lists and watches, and no fault becomes a busy loop."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from aiohttp import web

from elastic_operator.cluster.objects import CustomObject, Pod
from elastic_operator.cluster.reflector import ABSENT_SECONDS, INACTIVITY_SECONDS, PODS, Reflector
from tests.cluster_unit.build import pod_dict
from tests.cluster_unit.fake_api import FakeApi, at_rest, fake_api, json, session_to, status


def path(name: str) -> str:
    return f"/api/v1/namespaces/a/pods/{name}"


async def put(api: FakeApi, name: str, **fields) -> None:
    await api.put(path(name), pod_dict(name, **fields))


def pauses(api: FakeApi) -> list[float]:
    """Seconds between the watches."""
    return [later - earlier for earlier, later in pairwise(api.moments["WATCH"])]


def names(reflector: Reflector[Pod]) -> set[str]:
    return {obj.metadata.name for obj in reflector.store}


@asynccontextmanager
async def reflecting(api: FakeApi, *, pods: int = 0, **options):
    """A reflector that has synced and watches, or has tried to; `pods` there already are."""
    for i in range(pods):
        await put(api, f"p{i}")
    async with session_to(api) as session:
        reflector = Reflector(session, PODS, Pod, **options)
        task = asyncio.create_task(reflector.run())
        try:
            async with asyncio.timeout(60):
                await reflector.synced.wait()
            await at_rest()
            yield reflector
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_list_comes_in_pages_and_the_watch_goes_on_from_it():
    async with fake_api() as api, reflecting(api, pods=7, page=3) as reflector:
        assert api.requests["LIST"] == 3
        assert len(reflector.store) == 7
        await put(api, "new")
        await put(api, "p0", phase="Failed")
        await api.remove(path("p1"))
        await at_rest()
        assert names(reflector) == {"new", "p0", "p2", "p3", "p4", "p5", "p6"}
        assert reflector.store.named("p0", "a").status.phase == "Failed"
        assert api.requests["LIST"] == 3


async def test_before_the_first_list_the_age_is_infinite_and_afterwards_small():
    async with fake_api() as api, session_to(api) as session:
        assert Reflector(session, PODS, Pod).age() == math.inf
        async with reflecting(api) as reflector:
            heard = time.monotonic() - reflector.age()
            await asyncio.sleep(INACTIVITY_SECONDS - 1)
            assert reflector.age() == time.monotonic() - heard


@pytest.mark.parametrize("as_event", [False, True])
async def test_deletions_missed_before_a_410_are_told_once_and_nothing_else_is(as_event):
    async with fake_api() as api, reflecting(api, pods=50) as reflector:
        told = []
        reflector.store.subscribe(lambda old, new: told.append((old, new)))
        told.clear()
        for i in range(30):
            await api.remove(path(f"p{i}"), quietly=True)
        if as_event:
            await api.send(PODS, "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
        else:
            api.expire()
            api.cut()
        await asyncio.sleep(5)
        assert len(reflector.store) == 20
        assert api.requests["WATCH"] == (2 if as_event else 3)
        assert len(told) == 30
        assert all(new is None for _, new in told)
        assert reflector.stats.relists == 1


async def test_an_expired_continue_token_starts_the_list_again():
    async with fake_api() as api:
        for i in range(5):
            await put(api, f"p{i}")
        calls = iter((None, 410))

        async def second_page_expires(request):
            code = next(calls, None)
            return status(code) if code else await api._list(request, None)

        api.fail("LIST", second_page_expires, second_page_expires)
        async with reflecting(api, page=3) as reflector:
            assert len(reflector.store) == 5
            assert api.requests["LIST"] == 4


@pytest.mark.parametrize("code", [403, 429, 500])
async def test_a_watch_that_is_refused_is_tried_ever_more_slowly_and_then_goes_on(code):
    async with fake_api() as api:
        api.always["WATCH"] = code
        async with reflecting(api, pods=1) as reflector:
            await asyncio.sleep(300)
            for pause, least in zip(pauses(api), [0.5, 1, 2, 4, 8, 16, *[30] * 20], strict=False):
                assert least <= pause <= 1.2 * least
            assert len(pauses(api)) > 10
            del api.always["WATCH"]
            await put(api, "new")
            await asyncio.sleep(36)
            assert "new" in names(reflector)


async def test_the_server_s_wish_to_wait_is_granted():
    async def later(_request):
        return status(429, **{"Retry-After": "20"})

    async with fake_api() as api:
        api.fail("WATCH", later)
        async with reflecting(api):
            await asyncio.sleep(25)
            (pause,) = pauses(api)
            assert 20 <= pause <= 1.2 * 20


async def test_an_error_event_that_is_no_410_resumes_without_a_new_list():
    async with fake_api() as api, reflecting(api, pods=1) as reflector:
        await api.send(PODS, "ERROR", {"kind": "Status", "code": 500, "message": "etcd hiccup"})
        api.history.pop()
        await put(api, "new")
        await asyncio.sleep(1)
        assert "new" in names(reflector)
        assert api.requests["LIST"] == 1


async def test_a_silent_stream_is_given_up_and_resumed():
    async with fake_api() as api, reflecting(api, pods=1) as reflector:
        api.silent = True
        await put(api, "missed")
        await at_rest()  # the stream that is open has swallowed it by now; the next one starts before it
        api.silent = False
        await asyncio.sleep(INACTIVITY_SECONDS - 1)
        assert api.requests["WATCH"] == 1
        assert "missed" not in names(reflector)
        await asyncio.sleep(2)
        assert api.requests["WATCH"] == 2
        assert "missed" in names(reflector)


async def test_a_kind_of_which_nothing_is_ever_said_stays_fresh():
    async with fake_api() as api, reflecting(api) as reflector:
        api.silent = True
        for _ in range(60):
            await asyncio.sleep(10)
            assert reflector.age() <= INACTIVITY_SECONDS
        assert api.requests["WATCH"] == 1 + 600 // INACTIVITY_SECONDS
        assert api.requests["LIST"] == 1 + (api.requests["WATCH"] - 1) // 3
        assert reflector.stats.errors == 0


async def test_a_broken_stream_is_resumed_from_where_it_was():
    async with fake_api() as api, reflecting(api, pods=2) as reflector:
        api.cut()
        await put(api, "new")
        await asyncio.sleep(1)
        assert "new" in names(reflector)
        assert api.requests["LIST"] == 1


async def test_watches_that_end_at_once_are_no_busy_loop():
    async def ends(_request):
        return web.Response(body=b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"500"}}}\n')

    async with fake_api() as api:
        api.always["WATCH"] = ends
        async with reflecting(api):
            await asyncio.sleep(10)
            assert all(0.5 <= pause <= 1.2 * 0.5 for pause in pauses(api))


async def test_lists_that_fail_are_no_busy_loop_and_the_first_that_works_syncs():
    async with fake_api() as api:
        api.fail("LIST", 500, 403, 429)
        async with reflecting(api, pods=2) as reflector:
            assert api.requests["LIST"] == 4
            assert len(reflector.store) == 2


async def test_a_bookmark_moves_the_point_to_resume_from():
    async with fake_api() as api, reflecting(api, pods=1):
        await api.send(PODS, "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "4711"}})
        await at_rest()
        api.cut()
        await asyncio.sleep(1)
        watches = [query for verb, _, query, _ in api.seen if verb == "WATCH"]
        assert watches[1]["resourceVersion"] == "4711"
        assert watches[1]["allowWatchBookmarks"] == "true"


async def test_a_resource_version_that_no_watch_accepts_is_given_up():
    async with fake_api() as api, reflecting(api, pods=1) as reflector:
        await put(api, "missed")
        await at_rest()
        assert "missed" in names(reflector)
        api.fail("WATCH", 504, 504, 504)
        api.cut()
        await asyncio.sleep(20)
        assert api.requests["LIST"] == 2


async def test_one_object_that_cannot_be_read_does_not_blind_us_for_the_others(caplog):
    async with fake_api() as api:
        await api.put(path("odd"), pod_dict("odd") | {"spec": {"containers": 5}})
        async with reflecting(api, pods=2) as reflector:
            await put(api, "new")
            await at_rest()
            assert names(reflector) == {"p0", "p1", "new"}
            assert reflector.stats.undecodable == 1
            assert "odd" in caplog.text


async def test_objects_split_over_chunks_are_put_together():
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

    async with fake_api() as api:
        api.fail("WATCH", crumbs)
        async with reflecting(api) as reflector:
            assert "big" in names(reflector)


async def test_a_server_restored_from_a_backup_is_believed_without_a_moment_of_knowing_nothing():
    async with fake_api() as api, reflecting(api, pods=3, page=2) as reflector:
        old = dict(api.objects)
        api.revision = 10
        api.objects.clear()
        api.history.clear()
        for kept in ("p0", "p1", "restored"):
            await api.put(path(kept), old.get(path(kept)) or pod_dict(kept))
        seen_between_pages = []

        async def second_page(request):
            if "continue" in request.query:
                seen_between_pages.append(names(reflector))
            return await api._list(request, None)

        api.always["LIST"] = second_page
        api.fail("WATCH", 410)
        api.cut()
        await asyncio.sleep(5)
        assert names(reflector) == {"p0", "p1", "restored"}
        assert seen_between_pages == [{"p0", "p1", "p2"}]
        assert int(reflector.store.named("p0", "a").metadata.resource_version) < 20


async def test_an_answer_to_a_write_that_overtakes_the_watch_is_kept():
    async with fake_api() as api, reflecting(api, pods=1) as reflector:
        api.silent = True
        await put(api, "written")
        reflector.store.observe(reflector._decode(json(api.objects[path("written")]).body))
        assert "written" in names(reflector)
        api.silent = False
        api.cut()
        await put(api, "later")
        await asyncio.sleep(1)
        assert "later" in names(reflector)
        assert "written" in names(reflector)


async def test_a_listener_that_fails_does_not_end_the_watch(caplog):
    async with fake_api() as api, reflecting(api) as reflector:

        def fails(_old, new):
            if new.metadata.name == "cursed":
                raise RuntimeError("boom")

        reflector.store.subscribe(fails)
        await put(api, "cursed")
        await put(api, "new")
        await asyncio.sleep(1)
        assert "new" in names(reflector)
        assert "boom" in caplog.text


async def test_catching_up_takes_in_what_a_silent_watch_held_back():
    async with fake_api() as api, reflecting(api, pods=3) as reflector:
        api.silent = True
        await put(api, "new")
        await api.remove(path("p0"))
        await at_rest()
        assert names(reflector) == {"p0", "p1", "p2"}
        api.fail("LIST", 500, 429)
        async with asyncio.timeout(1.2 * (0.5 + 1)):
            await reflector.catch_up()
        assert names(reflector) == {"new", "p1", "p2"}


POLICIES = "/apis/elastic-pytorch.dev/v1beta1/gpuquotapolicies"


@asynccontextmanager
async def reflecting_optional(api: FakeApi):
    async with session_to(api) as session:
        reflector = Reflector(session, POLICIES, CustomObject, optional=True)
        task = asyncio.create_task(reflector.run())
        try:
            yield reflector
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_an_optional_kind_that_is_not_served_has_no_objects_and_is_fresh_until_it_comes():
    async with fake_api() as api:
        api.always["LIST"] = 404
        async with reflecting_optional(api) as reflector:
            await at_rest()
            assert reflector.synced.is_set()
            await reflector.catch_up()
            for _ in range(100):
                await asyncio.sleep(1)
                assert reflector.age() <= ABSENT_SECONDS
            assert len(reflector.store) == 0
            assert reflector.stats.errors == 0
            await api.put(f"{POLICIES}/a", {"metadata": {}, "spec": {}})
            del api.always["LIST"]
            await asyncio.sleep(ABSENT_SECONDS)
            assert reflector.store.named("a") is not None
            await api.put(f"{POLICIES}/b", {"metadata": {}, "spec": {}})
            await at_rest()
            assert reflector.store.named("b") is not None


async def test_when_an_optional_kind_is_removed_its_objects_are_gone():
    async with fake_api() as api:
        await api.put(f"{POLICIES}/a", {"metadata": {}, "spec": {}})
        async with reflecting_optional(api) as reflector:
            await at_rest()
            assert reflector.store.named("a") is not None
            api.always |= {"LIST": 404, "WATCH": 404}
            api.cut()
            await asyncio.sleep(1)
            assert len(reflector.store) == 0
            assert reflector.age() < 1


async def test_a_kind_that_must_be_there_and_is_not_served_is_never_fresh():
    async with fake_api() as api:
        api.always["LIST"] = 404
        async with session_to(api) as session:
            reflector = Reflector(session, PODS, Pod)
            task = asyncio.create_task(reflector.run())
            await asyncio.sleep(10)
            assert reflector.stats.errors > 1
            assert reflector.age() == math.inf
            assert not reflector.synced.is_set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
