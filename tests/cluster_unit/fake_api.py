"""A small API server on loopback for what a real one cannot be made to do on demand: expire, refuse, hang, fall silent.

It keeps objects by path, counts resourceVersions up, pages lists, streams watches, and honours the preconditions that
our writes carry. Faults are queued per verb and used up one by one.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from elastic_operator.cluster.connection import Connection, Credentials
from elastic_operator.cluster.session import Session

Fault = int | Callable[[web.Request], Any]
"""An HTTP status to answer with, or a coroutine function that answers."""

REASONS = {403: "Forbidden", 404: "NotFound", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}


@dataclass
class FakeApi:
    """The server's state; tests read and change it."""

    url: str = ""
    revision: int = 100
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: list[tuple[int, str, str, dict[str, Any]]] = field(default_factory=list)
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    always: dict[str, Fault] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    seen: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)
    moments: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """When each verb was asked for, by the clock of the loop."""
    headers: list[dict[str, str]] = field(default_factory=list)
    oldest: int = 0
    silent: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    streams: set[asyncio.Task[Any]] = field(default_factory=set)

    def fail(self, verb: str, *faults: Fault) -> None:
        """Answer the next requests of `verb` (LIST, WATCH or a method) with these."""
        self.faults[verb].extend(faults)

    async def put(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Create or change an object, as any client could."""
        self.revision += 1
        new = deepcopy(obj)
        meta = new.setdefault("metadata", {})
        old = self.objects.get(path)
        meta.setdefault("name", path.rsplit("/", 1)[1])
        if namespace := re.search(r"/namespaces/([^/]+)/", path):
            meta["namespace"] = namespace[1]
        meta["uid"] = old["metadata"]["uid"] if old else meta.get("uid") or str(uuid.uuid4())
        meta["resourceVersion"] = str(self.revision)
        self.objects[path] = new
        await self._tell("MODIFIED" if old else "ADDED", path, new)
        return new

    async def remove(self, path: str, *, quietly: bool = False) -> None:
        """Delete an object; `quietly` as if no watch could ever tell."""
        self.revision += 1
        gone = self.objects.pop(path)
        gone["metadata"]["resourceVersion"] = str(self.revision)
        if not quietly:
            await self._tell("DELETED", path, gone)

    async def send(self, collection: str, type_: str, obj: dict[str, Any]) -> None:
        """Send a watch event as it is."""
        await self._tell(type_, collection + "/x", obj)

    def expire(self) -> None:
        """Forget the history: whoever resumes from before now gets 410."""
        self.oldest = self.revision
        self.history.clear()

    def cut(self) -> None:
        """Break all streams."""
        for stream in tuple(self.streams):
            stream.cancel()

    async def _tell(self, type_: str, path: str, obj: dict[str, Any]) -> None:
        self.history.append((self.revision, path, type_, deepcopy(obj)))
        async with self.changed:
            self.changed.notify_all()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        body = msgspec.json.decode(await request.read()) if request.can_read_body else None
        verb = self._verb(request)
        self.requests[verb] += 1
        self.moments[verb].append(time.monotonic())
        self.seen.append((verb, request.path, dict(request.query), body))
        self.headers.append(dict(request.headers))
        fault = self.faults[verb].popleft() if self.faults[verb] else self.always.get(verb)
        if isinstance(fault, int):
            return status(fault)
        if fault is not None:
            return await fault(request)
        handlers = {"LIST": self._list, "WATCH": self._watch, "GET": self._get, "POST": self._post}
        handlers |= {"PUT": self._put, "PATCH": self._patch, "DELETE": self._delete}
        return await handlers[verb](request, body)

    def _verb(self, request: web.Request) -> str:
        if request.method != "GET":
            return request.method
        if "watch" in request.query:
            return "WATCH"
        return "LIST" if "limit" in request.query else "GET"

    async def _list(self, request: web.Request, _body: Any) -> web.Response:
        found = [obj for path, obj in self.objects.items() if request.path in collections_of(path)]
        begin, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        meta = {"resourceVersion": str(self.revision)}
        if begin + limit < len(found):
            meta["continue"] = str(begin + limit)
        return json({"metadata": meta, "items": found[begin : begin + limit] or None})

    async def _watch(self, request: web.Request, _body: Any) -> web.StreamResponse:
        known = int(request.query["resourceVersion"])
        if known < self.oldest:
            return status(410)
        response = web.StreamResponse()
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self.streams.add(task)
        sent = next((i for i, item in enumerate(self.history) if item[0] > known), len(self.history))
        try:
            while True:
                for _, path, type_, obj in self.history[sent:]:
                    if request.path in collections_of(path) and not self.silent:
                        await response.write(msgspec.json.encode({"type": type_, "object": obj}) + b"\n")
                sent = len(self.history)
                async with self.changed:
                    await self.changed.wait()
        finally:
            self.streams.discard(task)

    async def _get(self, request: web.Request, _body: Any) -> web.Response:
        obj = self.objects.get(request.path)
        return json(obj) if obj else status(404)

    async def _post(self, request: web.Request, body: Any) -> web.Response:
        path = f"{request.path}/{body['metadata']['name']}"
        if path in self.objects:
            return status(409, "AlreadyExists")
        return json(await self.put(path, body), code=201)

    async def _put(self, request: web.Request, body: Any) -> web.Response:
        return await self._change(request.path, body, body["metadata"])

    async def _patch(self, request: web.Request, body: Any) -> web.Response:
        path = request.path.removesuffix("/status")
        return await self._change(path, merged(self.objects.get(path, {}), body), body.get("metadata") or {})

    async def _change(self, path: str, new: dict[str, Any], precondition: dict[str, Any]) -> web.Response:
        old = self.objects.get(path)
        if old is None:
            return status(404)
        if (
            precondition.get("resourceVersion", old["metadata"]["resourceVersion"])
            != old["metadata"]["resourceVersion"]
        ):
            return status(409, "Conflict")
        return json(await self.put(path, new))

    async def _delete(self, request: web.Request, body: Any) -> web.Response:
        old = self.objects.get(request.path)
        if old is None:
            return status(404)
        if body["preconditions"]["uid"] != old["metadata"]["uid"]:
            return status(409, "Conflict")
        await self.remove(request.path)
        return json(merged(old, {"kind": "Pod", "metadata": {"deletionGracePeriodSeconds": 0}}))


def collections_of(path: str) -> tuple[str, str]:
    """`/api/v1/namespaces/a/pods/x` is listed under `/api/v1/pods`, and under `/api/v1/namespaces/a/pods`."""
    return re.sub(r"/namespaces/[^/]+(?=/)", "", path).rsplit("/", 1)[0], path.rsplit("/", 1)[0]


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    kept = {k: v for k, v in (old if isinstance(old, dict) else {}).items() if patch.get(k, ...) is not None}
    return kept | {k: merged(kept.get(k), v) for k, v in patch.items() if v is not None}


def json(obj: Any, *, code: int = 200) -> web.Response:
    """A response with that body."""
    return web.Response(body=msgspec.json.encode(obj), status=code, content_type="application/json")


def status(code: int, reason: str = "", **headers: str) -> web.Response:
    """A refusal as the API server words it."""
    body = {"kind": "Status", "code": code, "reason": reason or REASONS.get(code, ""), "message": f"no ({code})"}
    response = json(body, code=code)
    response.headers.update(headers)
    return response


async def hang(_request: web.Request) -> web.Response:
    """Never answers."""
    await asyncio.sleep(3600)
    raise AssertionError


@asynccontextmanager
async def fake_api() -> AsyncIterator[FakeApi]:
    """A server on a free port of the loopback interface."""
    api = FakeApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()


@asynccontextmanager
async def session_to(api: FakeApi, **options: Any) -> AsyncIterator[Session]:
    """A session to the server."""
    async with Session(Connection(api.url, Credentials(lambda: None)), **options) as session:
        yield session


async def at_rest() -> None:
    """Let everything happen that needs no time."""
    await asyncio.sleep(0.001)
