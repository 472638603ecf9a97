"""The API server in memory on loopback, and what a real one cannot be made to do on demand: refuse, hang, fall silent.

Faults are queued per verb and used up one by one.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiohttp import web

from elastic_operator.cluster.connection import Connection, Credentials
from elastic_operator.cluster.session import Session
from tests.kit.requests import REASONS, told
from tests.simulate.api import Answer, Api, RefusedError, Request
from tests.simulate.server import NAMESPACES, Body, Server
from tests.virtual.world import LoopClock

Fault = int | web.Response | Callable[[web.Request], Any]
"""An HTTP status to answer with, an answer (that is given once), or a coroutine function that answers."""


@dataclass
class FakeApi:
    """The server's state; tests read and change it."""

    url: str = ""
    memory: Api = field(default_factory=lambda: Api(Server(LoopClock())))  # type: ignore[arg-type]
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    always: dict[str, Fault] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    seen: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)
    moments: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """When each verb was asked for, by the clock of the loop."""
    headers: list[dict[str, str]] = field(default_factory=list)
    silent: bool = False
    """Watches that are open swallow what they should tell."""
    streams: set[asyncio.Task[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name in ("a", "b", "other", "sys"):
            self.server.create(NAMESPACES, {"metadata": {"name": name}})

    @property
    def server(self) -> Server:
        """The objects."""
        return self.memory.server

    def fail(self, verb: str, *faults: Fault) -> None:
        """Answer the next requests of `verb` (LIST, WATCH or a method) with these."""
        self.faults[verb].extend(faults)

    def find(self, path: str) -> Body | None:
        """The object at that path."""
        place = self.memory._place(path)
        return self.server.find(place.plural, place.namespace, place.name)

    def put(self, path: str, obj: Mapping[str, Any]) -> Body:
        """Create or change an object, its status as well, as several clients could together."""
        place, old, meta = self.memory._place(path), self.find(path), obj.get("metadata", {})
        if old is not None:
            return self.server.replace(place.plural, old, {**obj, "metadata": {**old["metadata"], **meta}})
        named = {"name": place.name} | ({"namespace": place.namespace} if place.namespace else {})
        return self.server.create(place.plural, {**obj, "metadata": {**meta, **named}})

    def remove(self, path: str, *, quietly: bool = False) -> None:
        """Delete an object; `quietly` as if no watch could ever tell."""
        listeners, self.server.listeners = self.server.listeners, [] if quietly else self.server.listeners
        found = self.find(path)
        assert found is not None
        self.server.remove(self.memory._place(path).plural, found)
        self.server.listeners = listeners

    def send(self, type_: str, obj: Mapping[str, Any]) -> None:
        """Send a watch event as it is to everybody."""
        for watch in self.memory.watches:
            watch.on_line(msgspec.json.encode({"type": type_, "object": obj}) + b"\n")

    def cut(self) -> None:
        """Break all streams."""
        for stream in tuple(self.streams):
            stream.cancel()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        verb = self._verb(request)
        self.requests[verb] += 1
        self.moments[verb].append(time.monotonic())
        asked = await _asked(request)
        self.seen.append((verb, asked.path, dict(asked.query), asked.body))
        self.headers.append(dict(request.headers))
        fault = self.faults[verb].popleft() if self.faults[verb] else self.always.get(verb)
        if isinstance(fault, int):
            return status(fault)
        if isinstance(fault, web.Response):
            return fault
        return await (fault or self.answer)(request)

    def _verb(self, request: web.Request) -> str:
        if request.method != "GET":
            return request.method
        if "watch" in request.query:
            return "WATCH"
        return "LIST" if "limit" in request.query else "GET"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """What a server without faults answers."""
        asked = await _asked(request)
        try:
            return await self._watch(request, asked) if asked.watches else _response(self.memory.answer(asked))
        except RefusedError as error:
            return _response(error.answer)

    async def _watch(self, request: web.Request, asked: Request) -> web.StreamResponse:
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        watch = self.memory.watch(asked, lambda line: None if self.silent and line else lines.put_nowait(line))
        response, task = web.StreamResponse(), asyncio.current_task()
        await response.prepare(request)
        assert task is not None
        self.streams.add(task)
        try:
            while (line := await lines.get()) is not None:
                await response.write(line)
        finally:
            self.streams.discard(task)
            self.memory.leave(watch)
        return response


async def _asked(request: web.Request) -> Request:
    body = await request.read()
    given = msgspec.json.decode(body) if body else None
    return Request(request.method, request.path, dict(request.query), given, "strategic" in request.content_type)


def _response(answer: Answer) -> web.Response:
    return web.Response(body=answer.body, status=answer.status, content_type="application/json")


def json(obj: Any, *, code: int = 200, **headers: str) -> web.Response:
    """A response with that body."""
    response = _response(Answer(code, msgspec.json.encode(obj)))
    response.headers.update(headers)
    return response


def status(code: int, reason: str = "", **headers: str) -> web.Response:
    """A refusal as the API server words it."""
    reason = reason or REASONS.get(code, "")
    message = told(code, "the object") if reason == "Conflict" else f"no ({code})"
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return json(body, code=code, **headers)


async def hang(_request: web.Request) -> web.Response:
    """Never answers."""
    await asyncio.sleep(3600)
    raise AssertionError


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeApi]:
    """A server on a free port of the loopback interface."""
    api = FakeApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    api.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()


@pytest.fixture(name="api")
async def fake_api() -> AsyncIterator[FakeApi]:
    """A server of that kind, without TLS."""
    async with serving() as api:
        yield api


def connection_to(api: FakeApi) -> Connection:
    """Where it is."""
    return Connection(api.url, Credentials(lambda: None))


@asynccontextmanager
async def session_to(
    api: FakeApi, *, remaining: Callable[[], float] | None = None, **options: Any
) -> AsyncIterator[Session]:
    """A session to the server, fenced by `remaining` if that is given."""
    async with Session(connection_to(api), **options) as session:
        session.remaining = remaining or session.remaining
        yield session


@pytest.fixture(name="session")
async def plain_session(api: FakeApi) -> AsyncIterator[Session]:
    """A session to the server, with a lease that does not end."""
    async with session_to(api) as session:
        yield session


async def at_rest() -> None:
    """Let everything happen that needs no time."""
    await asyncio.sleep(0.001)
