"""Requests: what refusals become, what the fence lets through, and whose clock counts."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter

import pytest
from aiohttp import web

from elastic_operator.cluster import errors
from elastic_operator.cluster.connection import TOKEN_SECONDS, Connection, Credentials
from elastic_operator.cluster.session import WRITE_SECONDS, Session, _kind
from tests.cluster_unit.fake_api import at_rest, hang, json, session_to, status
from tests.kit.requests import told
from tests.kit.tasks import running

PATH = "/api/v1/namespaces/a/pods"
BODY = {"metadata": {"name": "p"}, "spec": {"containers": []}}


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotServed),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Expired),
        (418, "Teapot", errors.ApiError),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (503, "ServiceUnavailable", errors.ServerError),
    ],
)
async def test_each_refusal_has_its_exception(api, session, code, reason, expected):
    api.fail("POST", status(code, reason))
    with pytest.raises(errors.ApiError) as caught:
        await session.post(PATH, BODY)
    assert type(caught.value) is expected
    assert (caught.value.status, caught.value.reason) == (code, reason)
    assert caught.value.message == (told(code, "the object") if reason == "Conflict" else f"no ({code})")


@pytest.mark.parametrize(("answer", "is_unknown"), [(409, False), (500, False), (504, True), (hang, True)])
async def test_a_session_notes_when_a_write_ended_with_an_unknown_outcome(api, session, answer, is_unknown):
    api.fail("POST", answer)
    with pytest.raises(errors.ClusterError):
        await session.post(PATH, BODY)
    assert session.outcome_unknown_at == (time.monotonic() if is_unknown else -math.inf)


async def test_a_cancelled_write_has_an_unknown_outcome(api, session):
    api.fail("POST", hang)
    async with running(session.post(PATH, BODY)):
        await asyncio.sleep(1)
    assert session.outcome_unknown_at == time.monotonic()


async def test_the_time_to_wait_is_read_from_the_refusal(api, session):
    api.fail("POST", json({"kind": "Status", "details": {"retryAfterSeconds": 7}}, code=403))
    with pytest.raises(errors.Forbidden) as caught:
        await session.post(PATH, BODY)
    assert caught.value.retry_after == 7


async def test_a_page_of_a_proxy_in_between_is_no_answer(api, session):
    for verb in ("GET", "POST"):
        api.fail(verb, web.Response(text="<html>Welcome</html>"))
    with pytest.raises(errors.Unreachable, match="not the API server's"):
        await session.get(PATH)
    with pytest.raises(errors.Unreachable, match="not the API server's"):
        await session.post(PATH, BODY)


async def test_a_refusal_by_a_proxy_in_between_is_read_as_text(api, session):
    api.fail("GET", web.Response(status=502, text="<html>Bad gateway</html>"))
    with pytest.raises(errors.ServerError, match="Bad gateway"):
        await session.get(PATH + "/p")


async def test_no_write_is_sent_without_a_lease_but_reads_are(api):
    async with session_to(api, remaining=lambda: 0.0) as session:
        for write in (
            session.post(PATH, BODY),
            session.put(PATH + "/p", BODY),
            session.patch(PATH + "/p", BODY),
            session.delete(PATH + "/p", BODY),
        ):
            with pytest.raises(errors.Fenced):
                await write
        assert not api.seen
        with pytest.raises(errors.NotFound):
            await session.get(PATH + "/p")


async def test_a_write_that_waited_for_its_turn_is_fenced_by_the_lease_as_it_is_then(api, monkeypatch):
    monkeypatch.setattr("elastic_operator.cluster.session.MAX_WRITES", 1)
    left = [math.inf]
    async with session_to(api, remaining=lambda: left[0]) as session:
        gate = asyncio.Event()

        async def slow(_request):
            await gate.wait()
            return json(BODY)

        api.fail("POST", slow)
        first = asyncio.create_task(session.post(PATH, BODY))
        second = asyncio.create_task(session.post(PATH, BODY))
        await at_rest()
        left[0] = 0.0
        gate.set()
        await first
        with pytest.raises(errors.Fenced):
            await second
        assert api.requests["POST"] == 1


async def test_a_write_whose_connection_comes_after_the_lease_is_lost_is_not_sent(api, monkeypatch):
    left, connected = [math.inf], asyncio.Event()
    connect = asyncio.get_running_loop().create_connection

    async def slowly(*args, **options):
        await connected.wait()
        return await connect(*args, **options)

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", slowly)
    async with session_to(api, remaining=lambda: left[0]) as session:
        write = asyncio.create_task(session.post(PATH, BODY))
        await at_rest()
        left[0] = 0.0
        connected.set()
        with pytest.raises(errors.Unreachable, match="not hold the lease"):
            await write
        assert not api.seen


async def test_a_write_that_hangs_is_given_up_when_the_lease_ends(api):
    async with session_to(api, remaining=lambda: 3.0) as session:
        api.fail("POST", hang)
        with pytest.raises(errors.Unreachable):
            await session.post(PATH, BODY)
        assert time.monotonic() == 3


async def test_a_write_that_hangs_is_given_up_after_eight_seconds_under_any_lease(api, session):
    api.fail("PATCH", hang)
    with pytest.raises(errors.Unreachable):
        await session.patch(PATH + "/p", {})
    assert time.monotonic() == WRITE_SECONDS == 8


async def test_a_server_that_is_not_there_is_unreachable():
    async with Session(Connection("http://127.0.0.1:1", Credentials(lambda: None))) as session:
        with pytest.raises(errors.Unreachable):
            await session.get(PATH)


async def test_requests_are_counted_by_verb_and_outcome(api):
    counts: Counter[tuple[str, str]] = Counter()
    left = [60.0]
    options = {"on_request": lambda *key: counts.update([key]), "remaining": lambda: left[0]}
    async with session_to(api, **options) as session:
        await session.post(PATH, BODY)
        api.fail("POST", 500, hang)
        for expected, seconds in ((errors.ServerError, 60.0), (errors.Unreachable, 3.0)):
            left[0] = seconds
            with pytest.raises(expected):
                await session.post(PATH, BODY)
        left[0] = -1.0
        with pytest.raises(errors.Fenced):
            await session.delete(PATH, BODY)
    assert counts == {("POST", "201"): 1, ("POST", "500"): 1, ("POST", "timeout"): 1, ("DELETE", "fenced"): 1}


async def breaks_off(request: web.Request) -> web.StreamResponse:
    """Answers 200 and ends the connection within the body."""
    response = web.StreamResponse()
    response.content_length = 100
    await response.prepare(request)
    await response.write(b"{")
    assert request.transport is not None
    request.transport.abort()
    return response


async def stops_short(request: web.Request) -> web.StreamResponse:
    """Answers 200 and falls silent within the body."""
    response = web.StreamResponse()
    response.content_length = 100
    await response.prepare(request)
    await response.write(b"{")
    await asyncio.Event().wait()
    return response


async def read_watch(session: Session) -> None:
    """Watch until the end."""
    async with session.stream(PATH, params={"watch": "true"}, inactivity=1.0) as stream:
        while await stream.readany():
            pass


@pytest.mark.parametrize(("answer", "outcome"), [(breaks_off, "error"), (stops_short, "timeout")])
async def test_request_whose_body_fails_is_counted_once(api, answer, outcome):
    """Each failure would halve the share of failures, on which there is an alert."""
    counts: Counter[tuple[str, str]] = Counter()
    async with session_to(api, on_request=lambda *key: counts.update([key])) as session:
        api.fail("GET", answer)
        with pytest.raises(errors.Unreachable):
            await session.get(PATH)
        api.fail("WATCH", answer)
        with pytest.raises(errors.Unreachable):
            await read_watch(session)
    assert counts == {("GET", outcome): 1, ("WATCH", outcome): 1}


async def test_patches_are_merge_patches_and_requests_say_who_sends_them(api, session):
    await session.post(PATH, BODY)
    await session.patch(PATH + "/p", {})
    assert api.headers[1]["Content-Type"] == "application/merge-patch+json"
    assert api.headers[1]["User-Agent"].startswith("elastic-operator/")


async def test_the_token_is_read_again_after_a_minute_and_after_it_was_refused(api):
    tokens = iter(("Bearer one", "Bearer two", "Bearer three"))
    async with Session(Connection(api.url, Credentials(lambda: next(tokens)))) as session:
        await session.post(PATH, BODY)
        await asyncio.sleep(TOKEN_SECONDS - 1)
        await session.get(PATH + "/p")
        await asyncio.sleep(2)
        api.fail("GET", 401)
        with pytest.raises(errors.Unauthorized):
            await session.get(PATH + "/p")
        await session.get(PATH + "/p")
    sent = [headers["Authorization"] for headers in api.headers]
    assert sent == ["Bearer one", "Bearer one", "Bearer two", "Bearer three"]


async def test_credentials_that_cannot_be_read_make_the_server_unreachable(api):
    def missing() -> str:
        raise FileNotFoundError("token")

    async with Session(Connection(api.url, Credentials(missing))) as session:
        with pytest.raises(errors.Unreachable, match="token"):
            await session.get(PATH)


async def test_the_time_is_the_server_s(api, session):
    api.fail("GET", json(BODY, Date="Mon, 05 Jan 2015 10:00:00 GMT"))
    await session.get(PATH)
    assert 0 <= session.clock.time() - 1420452000 <= 1


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/namespaces/a/pods", "pods"),
        ("/api/v1/namespaces/a/pods/b/status", "pods"),
        ("/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/b", "endpointslices"),
        ("/apis/elastic-pytorch.dev/v1beta1/gpuquotapolicies/a/status", "gpuquotapolicies"),
        ("/api/v1/namespaces/a", "namespaces"),
    ],
)
def test_writes_of_one_method_and_resource_are_of_one_kind(path, resource):
    assert _kind("PATCH", path) == f"PATCH {resource}"


def test_dry_runs_and_creations_are_of_two_kinds():
    path = "/api/v1/namespaces/a/pods"
    assert _kind("POST", path, {"dryRun": "All"}) != _kind("POST", path, {"fieldValidation": "Strict"})
