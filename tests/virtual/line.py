"""One process's line to the in-memory API server, in place of aiohttp's session. It has delays and faults.

A request that was sent arrives, even if nobody waits for its answer any more. This is true of the writes of a process
that was killed or frozen, or whose timeout ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from random import Random
from typing import Any

import aiohttp
import msgspec

from tests.kit.requests import REASONS, CutOff, Entry, Matcher, Refusal, Request, anything, told
from tests.simulate.api import Answer, Api, RefusedError, Watch, refusal
from tests.virtual.loop import OUTSIDE

LATENCY = (0.0005, 0.02)
"""The delay of each direction, in seconds."""


@dataclass(slots=True)
class Faults:
    """The current faults of a line.

    Connections are refused. Requests do not arrive, or arrive when the line is healed. Watches fall silent, or drop
    events. Answers to matching requests are lost. Each request takes longer.
    """

    refuse: bool = False
    swallow: bool = False
    stalled: bool = False
    silent: Matcher | None = None
    unseen: Matcher | None = None
    unanswered: Matcher | None = None
    delay: float = 0.0
    refusals: list[Refusal] = field(default_factory=list)


class Stream:
    """The body of a watch."""

    def __init__(self, inactivity: float | None) -> None:
        self._inactivity = inactivity
        self._data: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()

    def put(self, data: bytes | Exception | None) -> None:
        """Add data that has arrived; None is the end."""
        self._data.put_nowait(data)

    async def iter_any(self) -> AsyncIterator[bytes]:
        """The arriving data. Raises TimeoutError after silence."""
        while True:
            async with asyncio.timeout(self._inactivity):
                data = await self._data.get()
            if data is None:
                return
            if isinstance(data, Exception):
                raise data
            yield data


@dataclass(frozen=True, slots=True)
class Response:
    """The used part of aiohttp's response."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    content: Stream | None = None
    connection: None = None

    async def read(self) -> bytes:
        """The body."""
        return self.body


@dataclass(slots=True, eq=False)
class _Open:
    """An open watch. A silent watch stays silent, because it has dropped events."""

    request: Request
    stream: Stream
    watch: Watch | None = None
    silent: bool = False
    due: float = 0.0


class Line:
    """One process's line to `api`. `rng` draws its delays. `sent` and `arrived` are called with each request."""

    def __init__(self, api: Api, rng: Random) -> None:
        self.api, self.rng = api, rng
        self.faults = Faults()
        self.log: list[Entry] = []
        self.dead = False
        self.sent: Callable[[Request], None] = lambda _: None
        self.before: Callable[[Request], None] = lambda _: None
        self.after: Callable[[Request, int], None] = lambda _request, _status: None
        self._open: dict[_Open, None] = {}
        self._stalled: list[tuple[Any, ...]] = []
        self._pending: dict[asyncio.Future[Any], None] = {}

    # -- faults ------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """End all faults."""
        self.faults = Faults()
        stalled, self._stalled = self._stalled, []
        for request in stalled:
            self._later(self._reach, *request)

    def cut(self) -> None:
        """End all connections."""
        for each in tuple(self._open):
            self._arrive(each, aiohttp.ClientPayloadError("cut"))
        for future in tuple(self._pending):
            if not future.done():
                future.set_exception(aiohttp.ServerDisconnectedError())

    def die(self) -> None:
        """End the line of a dead process: nothing is sent or received. Requests on their way still arrive."""
        self.dead = True
        for each in tuple(self._open):
            self._leave(each)

    def end_watches(self, status: int, where: Matcher = anything) -> None:
        """Send an error to matching watches, and end them."""
        for each in tuple(self._open):
            if each.watch is not None and where(each.request):
                self.api.error(each.watch, status)

    def requests(self, *, since: float = 0.0, where: Matcher = anything) -> list[Entry]:
        """The requests sent since then."""
        return [entry for entry in self.log if entry.at >= since and where(entry.request)]

    # -- the interface of aiohttp's session --------------------------------------------------------------------------

    async def close(self) -> None:
        """Do nothing."""

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        data: aiohttp.BytesPayload | None = None,
        timeout: aiohttp.ClientTimeout,
        headers: Mapping[str, str] | None = None,
        **_: object,
    ) -> AsyncIterator[Response]:
        """Send the request, and wait for the answer within its timeout."""
        path = "/" + url.split("/", 3)[3]
        body = msgspec.json.decode(data.decode()) if data else None
        request = Request(
            method, path, dict(params or {}), body, "strategic" in (headers or {}).get("Content-Type", "")
        )
        entry = Entry(self._now(), request)
        self.log.append(entry)
        self.sent(request)
        if self.faults.refuse:
            raise aiohttp.ClientConnectionError("connection refused")
        opened = _Open(request, Stream(timeout.sock_read)) if request.watches else None
        async with asyncio.timeout(timeout.sock_read if opened else timeout.total):
            answer, headers = await self._exchange(entry, opened)
        try:
            content = opened.stream if opened else None
            yield Response(answer.status, headers, answer.body, content)
        finally:
            if opened is not None:
                self._leave(opened)

    async def _exchange(self, entry: Entry, opened: _Open | None) -> tuple[Answer, Mapping[str, str]]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[future] = None
        self._later(self._reach, entry, opened, future)
        try:
            return await future
        finally:
            del self._pending[future]

    def _reach(self, entry: Entry, opened: _Open | None, future: asyncio.Future[Any]) -> None:
        """Handle a request that has reached the server."""
        if self.faults.swallow:
            return
        if self.faults.stalled:
            self._stalled.append((entry, opened, future))
            return
        try:
            self.before(entry.request)
            answer, headers = self._answered(entry, opened)
            self.after(entry.request, answer.status)
        except CutOff:
            self._later(self._break, future)
            return
        if self.dead or (self.faults.unanswered is not None and self.faults.unanswered(entry.request)):
            return
        self._later(self._bring, (answer, headers), future)

    def _answered(self, entry: Entry, opened: _Open | None) -> tuple[Answer, dict[str, str]]:
        headers = {"Date": formatdate(self.api.server.clock.time(), usegmt=True)}
        refused = next((refusal for refusal in self.faults.refusals if refusal.takes(entry.request)), None)
        if refused is not None:
            if refused.retry_after is not None:
                headers["Retry-After"] = str(refused.retry_after)
            entry.status = refused.status
            message = refused.message or told(refused.status, entry.request.path)
            return refusal(refused.status, REASONS.get(refused.status, ""), message), headers
        if opened is None:
            answer = self.api.answer(entry.request)
            entry.status = answer.status
            return answer, headers
        if self.dead:
            return Answer(200, b""), headers
        try:
            self._open[opened] = None
            opened.watch = self.api.watch(entry.request, lambda line: self._tell(opened, line))
        except RefusedError as error:
            return error.answer, headers
        return Answer(200, b""), headers

    def _bring(self, answer: tuple[Answer, Mapping[str, str]], future: asyncio.Future[Any]) -> None:
        if not self.faults.swallow and not self.dead and not future.done():
            future.set_result(answer)

    def _break(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            future.set_exception(aiohttp.ServerDisconnectedError())

    # -- watches -----------------------------------------------------------------------------------------------------

    def _tell(self, opened: _Open, line: bytes | None) -> None:
        faults = self.faults
        if faults.swallow or (faults.silent is not None and faults.silent(opened.request)):
            opened.silent = True
        unseen = faults.unseen is not None and faults.unseen(opened.request)
        if not opened.silent and not unseen:
            opened.due = max(opened.due, self._now() + self._way())
            loop = asyncio.get_running_loop()
            loop.call_at(opened.due, opened.stream.put, line, context=OUTSIDE)

    def _arrive(self, opened: _Open, data: Exception) -> None:
        opened.stream.put(data)
        self._leave(opened)

    def _leave(self, opened: _Open) -> None:
        self._open.pop(opened, None)
        if opened.watch is not None:
            self.api.leave(opened.watch)

    # -- time --------------------------------------------------------------------------------------------------------

    def _later(self, work: Callable[..., None], *args: Any) -> None:
        """Call `work` after the delay of one direction."""
        asyncio.get_running_loop().call_later(self._way(), work, *args, context=OUTSIDE)

    def _way(self) -> float:
        return self.rng.uniform(*LATENCY) + self.faults.delay

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
