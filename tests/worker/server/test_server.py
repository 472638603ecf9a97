"""The launcher's port, spoken to over real connections."""

import asyncio
import contextlib
import json
import time

import pytest

from elastic_worker import contract
from elastic_worker.launcher import server
from elastic_worker.launcher.server import StatusServer

STATUS = {"contract": "1", "state": "Running", "members": ["toy-master-0"], "changes": []}


@contextlib.asynccontextmanager
async def serving(status=lambda: STATUS, metrics=lambda: "x 1\n"):
    served = StatusServer(status=status, metrics=metrics)
    await served.open(0, "127.0.0.1")
    try:
        yield served
    finally:
        await served.close()


async def send(served, request):
    """All that comes back until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


async def get(served, path):
    answer = await send(served, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    return int(head.split()[1]), body


async def test_each_page_has_its_content():
    async with serving() as served:
        assert await get(served, "/healthz") == (200, b"ok\n")
        code, body = await get(served, "/status?now")
        assert (code, json.loads(body)) == (200, STATUS)
        assert await get(served, "/metrics") == (200, b"x 1\n")
        assert (await get(served, "/"))[0] == 404


async def test_a_word_that_is_no_text_does_not_silence_the_status():
    async with serving(status=lambda: {**STATUS, "unusedFlags": ["--rdzv_id=\udcff"]}) as served:
        code, body = await get(served, "/status")
        assert (code, json.loads(body)["unusedFlags"]) == (200, ["--rdzv_id=?"])


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"POST /status HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405),
        (b"\x16\x03\x01 hello\r\n\r\n", 400),
        (b"GET /status\r\n\r\n", 400),
        (b"GET /" + b"x" * server.REQUEST_BYTES * 3 + b" HTTP/1.1\r\n\r\n", 400),
    ],
)
async def test_what_is_not_a_small_get_is_refused(request_, code):
    async with serving() as served:
        assert (await send(served, request_)).startswith(f"HTTP/1.1 {code} ".encode())
        assert (await get(served, "/healthz"))[0] == 200


async def test_whoever_sends_nothing_is_cut_off_and_holds_up_nobody():
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /status HT")
        assert (await get(served, "/healthz"))[0] == 200
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert time.monotonic() == server.REQUEST_SECONDS
        writer.close()


async def test_more_connections_than_allowed_are_closed(monkeypatch):
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 1)
    async with serving() as served:
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        await asyncio.sleep(0.1)
        assert await send(served, b"") == b""
        writer.close()


async def test_an_error_behind_a_page_is_an_answer_and_not_the_end(caplog):
    async with serving(status=lambda: 1 / 0) as served:
        assert (await get(served, "/status"))[0] == 500
        assert "division by zero" in caplog.text
        assert (await get(served, "/healthz"))[0] == 200


async def test_a_status_never_exceeds_what_the_operator_reads():
    members = [f"toy-worker-{index}" for index in range(500)]
    changes = [{"generation": index, "reason": "x" * 5000} for index in range(20, 0, -1)]
    async with serving(status=lambda: {**STATUS, "members": members, "changes": changes}) as served:
        _, body = await get(served, "/status")
        assert len(body) <= contract.STATUS_LIMIT_BYTES
        kept = json.loads(body)
        assert kept["changes"] == changes[: len(kept["changes"])]
        assert kept["changes"]
        assert kept["members"] == members
    async with serving(status=lambda: {**STATUS, "members": members * 20}) as served:
        _, body = await get(served, "/status")
        assert json.loads(body)["members"] == []


async def test_an_address_in_use_is_an_error_that_names_the_port():
    async with serving() as served:
        with pytest.raises(OSError, match=f"port {served.port} cannot be used"):
            await StatusServer(status=dict, metrics=str).open(served.port, "127.0.0.1")
