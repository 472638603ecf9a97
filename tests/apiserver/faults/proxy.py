"""A proxy before the API server that can misbehave as API servers and networks do.

Plain http on a loopback port in, the API server with the administrator's certificate out. Everything passes at first;
each fault lasts until `heal`. Requests are logged in the order of their arrival.

    with Proxy.of(kubeconfig) as proxy:
        operator = operators.start(server=proxy.url)
        proxy.answer(503)                       # or swallow, end_watches, cut
        proxy.heal()
        writes = [entry for entry in proxy.log if entry.request.writes]
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

import aiohttp
import kubernetes.client
import kubernetes.config
import yarl
from aiohttp import web
from multidict import CIMultiDict

from tests.kit.requests import REASONS, CutOff, Entry, Matcher, Refusal, Request, anything, failure, told

T = TypeVar("T")

HOST = "127.0.0.1"
MAX_BODY = 64 << 20
START_SECONDS = 10
CLOSE_SECONDS = 2
HOP_BY_HOP = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "keep-alive"}


class Filter:
    """What happens to answers on their way back; a test overrides what it needs. Runs in the proxy's thread."""

    def headers(self, request: Request, headers: CIMultiDict[str]) -> None:
        """Changes the answer's headers in place."""

    def body(self, request: Request, data: bytes) -> bytes:  # noqa: ARG002 - for those that override it
        """A whole body, or one event of a watch (a line of JSON, without its end); empty swallows an event."""
        return data


@dataclass(slots=True, eq=False)
class _Watch:
    """An open watch of a client. A silent one stays silent: an event that it swallowed would be missing."""

    request: Request
    response: web.StreamResponse
    silent: bool = False


@dataclass(slots=True)
class _Faults:
    """What is wrong now."""

    hang: bool = False
    refusals: list[Refusal] = field(default_factory=list)


class Proxy:
    """One proxy; `url` is what clients are given. A context manager."""

    def __init__(self, server: str, tls: ssl.SSLContext | None) -> None:
        self.log: list[Entry] = []
        self.filter = Filter()
        self.before: Callable[[Request], None] = lambda _: None
        """Called before a request is passed on. May raise CutOff: then it is not."""
        self.after: Callable[[Request, int], None] = lambda _request, _status: None
        """Called when the API server has answered, before the client hears of it. May raise CutOff."""
        self.one_write_at_a_time = False
        """So that "before the third write" means that the first two were carried out."""
        self.port = 0
        self._server, self._tls = server, tls
        self._faults = _Faults()
        self._watches: set[_Watch] = set()
        self._passing: set[asyncio.Task[web.Response]] = set()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        """To the API server."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    @classmethod
    def of(cls, kubeconfig: Path) -> Self:
        """A proxy before the API server of an administrator's kubeconfig, with that one's rights."""
        config = kubernetes.client.Configuration()
        kubernetes.config.load_kube_config(str(kubeconfig), client_configuration=config)
        context = ssl.create_default_context(cafile=config.ssl_ca_cert)
        context.load_cert_chain(config.cert_file, config.key_file)
        return cls(config.host, context)

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """For a kubeconfig: plain http, no credentials."""
        return f"http://{HOST}:{self.port}"

    def open_watches(self, where: Matcher = anything) -> int:
        """How many matching watches clients have open."""
        return sum(where(watch.request) for watch in list(self._watches))

    def swallow(self) -> None:
        """Accept connections and never answer; open watches fall silent. As a network that drops packets."""
        self._faults.hang = True
        for watch in list(self._watches):
            watch.silent = True

    def answer(self, status: int, *, where: Matcher = anything, times: int | None = None) -> None:
        """Answer matching requests (the next `times`, or all) with this status in the API server's place."""
        self._faults.refusals.append(Refusal(status, where, times))

    def end_watches(self, status: int, *, where: Matcher = anything) -> None:
        """Send matching watches, once, an ERROR event with that status."""
        self._wait(self._end_watches(status, where))

    def cut(self) -> None:
        """Break every open connection, once."""
        self._wait(self._cut())

    def heal(self) -> None:
        """No more faults. Connections on which an answer was swallowed are broken."""
        hung, self._faults = self._faults.hang, _Faults()
        if hung:
            self.cut()

    def requests(self, *, since: float = 0.0, where: Matcher = anything) -> list[Entry]:
        """What came after that monotonic time."""
        return [entry for entry in list(self.log) if entry.at >= since and where(entry.request)]

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)

    async def _open(self) -> None:
        self._writing = asyncio.Lock()
        self._out = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls or True, socket_factory=self._socket),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # A client that is gone needs no answer: its watches here would otherwise stay open to the API server.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, 0).start()
        self.port = self._runner.addresses[0][1]

    async def _cut(self) -> None:
        for connection in self._runner.server.connections if self._runner.server else ():
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)

    async def _close(self) -> None:
        await self._cut()
        await self._runner.cleanup()
        for passing in self._passing:
            passing.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)
        await self._out.close()
        deadline = time.monotonic() + CLOSE_SECONDS
        while time.monotonic() < deadline and any(one.fileno() >= 0 for one in self._sockets):  # noqa: ASYNC110 - closed sockets tell nobody
            await asyncio.sleep(0.01)

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        made = socket.socket(*address[:3])
        self._sockets.add(made)
        return made

    @asynccontextmanager
    async def _ask(self, request: Request, incoming: web.Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """The API server's answer. One that is left before its end takes its connection with it, at once: TLS that is
        ended in good order would wait for the other side.
        """
        async with self._out.request(
            request.method, self._target(incoming), data=request.body or None, headers=_passed_on(incoming.headers)
        ) as answer:
            try:
                yield answer
            finally:
                if answer.connection is not None and answer.connection.transport is not None:
                    answer.connection.transport.abort()

    async def _handle(self, incoming: web.Request) -> web.StreamResponse:
        request = Request(incoming.method, incoming.path, dict(incoming.query), await incoming.read())
        entry = Entry(time.monotonic(), request)
        self.log.append(entry)
        try:
            return await self._answer(incoming, entry)
        except (CutOff, ConnectionError, aiohttp.ClientError):
            if incoming.transport is not None:
                incoming.transport.abort()
            return web.Response(status=HTTPStatus.BAD_GATEWAY)

    async def _answer(self, incoming: web.Request, entry: Entry) -> web.StreamResponse:
        if self._faults.hang:
            await asyncio.Event().wait()
        if refusal := next((r for r in self._faults.refusals if r.takes(entry.request)), None):
            entry.status = refusal.status
            return web.json_response(_told(refusal.status), status=refusal.status)
        if entry.request.watches:
            return await self._watch(incoming, entry)
        passing = asyncio.ensure_future(self._pass(incoming, entry))
        self._passing.add(passing)
        passing.add_done_callback(self._passed)
        # The API server carries out what it was asked for, whether or not somebody still waits for the answer.
        return await asyncio.shield(passing)

    def _passed(self, done: asyncio.Task[web.Response]) -> None:
        self._passing.discard(done)
        if not done.cancelled():
            done.exception()

    async def _pass(self, incoming: web.Request, entry: Entry) -> web.Response:
        if self.one_write_at_a_time and entry.request.writes:
            async with self._writing:
                return await self._pass_now(incoming, entry)
        return await self._pass_now(incoming, entry)

    async def _pass_now(self, incoming: web.Request, entry: Entry) -> web.Response:
        request = entry.request
        self.before(request)
        async with self._ask(request, incoming) as answer:
            body = await answer.read()
            entry.status = answer.status
        self.after(request, answer.status)
        headers = _passed_on(answer.headers)
        self.filter.headers(request, headers)
        return web.Response(status=answer.status, headers=headers, body=self.filter.body(request, body))

    async def _watch(self, incoming: web.Request, entry: Entry) -> web.StreamResponse:
        request = entry.request
        async with self._ask(request, incoming) as answer:
            entry.status = answer.status
            headers = _passed_on(answer.headers)
            self.filter.headers(request, headers)
            response = web.StreamResponse(status=answer.status, headers=headers)
            watch = _Watch(request, response)
            await response.prepare(incoming)
            self._watches.add(watch)
            try:
                await self._stream(watch, answer.content)
            finally:
                self._watches.discard(watch)
            await response.write_eof()
            return response

    async def _stream(self, watch: _Watch, source: aiohttp.StreamReader) -> None:
        rest = b""
        async for data in source.iter_any():
            *events, rest = (rest + data).split(b"\n")
            for event in events:
                passed = b"" if watch.silent else self.filter.body(watch.request, event)
                if passed:
                    await watch.response.write(passed + b"\n")
        if watch.silent:
            await asyncio.Event().wait()
        if rest:
            await watch.response.write(rest)

    async def _end_watches(self, status: int, where: Matcher) -> None:
        for watch in [watch for watch in self._watches if where(watch.request)]:
            watch.silent = True
            with suppress(ConnectionError):
                await watch.response.write(_error_event(status))

    def _target(self, incoming: web.Request) -> yarl.URL:
        return yarl.URL(self._server + incoming.raw_path, encoded=True)


def _passed_on(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Without what belongs to one connection, and without compression: filters read what passes."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP)


def _error_event(code: int) -> bytes:
    return json.dumps({"type": "ERROR", "object": _told(code)}).encode() + b"\n"


def _told(code: int) -> dict[str, Any]:
    return failure(code, REASONS.get(code, ""), told(int(code), "the test's proxy"))
