"""An API server that accepts every write at once and has no watches, as the transport of a `Session`'s requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
from aiohttp import BytesPayload

from benchmarks.allocate.objects import STARTED

Body = dict[str, Any]
NOT_FOUND = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"}


@dataclass(slots=True)
class Response:
    """The part of an answer that a session reads."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    connection: None = None

    async def read(self) -> bytes:
        """The whole body."""
        return self.body


class Server:
    """Objects by path; `writes` counts the changes."""

    def __init__(self) -> None:
        self._objects: dict[str, Body] = {}
        self._revisions = count(1_000)
        self.writes = 0

    def put(self, path: str, body: Body) -> None:
        """Add an object that exists from the start."""
        self._objects[path] = body

    @asynccontextmanager
    async def request(
        self, method: str, url: str, *, data: BytesPayload | None = None, **_: object
    ) -> AsyncIterator[Response]:
        """One request."""
        path = url.removeprefix("http://memory")
        sent = msgspec.json.decode(data.decode()) if data else {}
        self.writes += method != "GET"
        answer = self._answer(method, path, sent)
        yield Response(404 if answer is NOT_FOUND else 200, msgspec.json.encode(answer))

    async def close(self) -> None:
        """Close nothing."""

    def _answer(self, method: str, path: str, sent: Body) -> Body:
        if method == "POST":
            return self._create(path, sent)
        known = self._objects.get(path.removesuffix("/status"))
        if known is None:
            return NOT_FOUND
        if method == "DELETE":
            del self._objects[path]
            return {"kind": "Status"}
        if method in ("PATCH", "PUT"):
            _merge(known, sent)
            known["metadata"]["resourceVersion"] = str(next(self._revisions))
        return known

    def _create(self, path: str, body: Body) -> Body:
        revision = str(next(self._revisions))
        meta = {**body["metadata"], "uid": f"made-{revision}", "resourceVersion": revision}
        made = {**body, "metadata": {**meta, "creationTimestamp": STARTED}}
        if path.endswith("/services"):
            made["spec"] = {**made["spec"], "clusterIP": "10.0.0.1"}
        self._objects[f"{path}/{meta.get('name', revision)}"] = made
        return made


def _merge(known: Body, patch: Body) -> None:
    for key, value in patch.items():
        if value is None:
            known.pop(key, None)
        elif isinstance(value, dict) and isinstance(known.get(key), dict):
            _merge(known[key], value)
        else:
            known[key] = value
