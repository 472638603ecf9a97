"""Follows a list of the API server by watches: first the objects, then each change, without polling."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from elastic_client.cluster import JSON, Cluster, ConnectionLostError, Object
from elastic_client.exits import Code
from elastic_client.refusals import GoneError

WATCH_SECONDS = 240
"""The time after which the server ends a watch, and the next one begins."""
PAUSE_SECONDS = 1
"""The least time from the beginning of a watch to that of the next one."""


@dataclass(frozen=True, slots=True)
class Change:
    """The present list, or a changed object; each is a table, if tables were requested."""

    kind: Literal["LIST", "ADDED", "MODIFIED", "DELETED"]
    body: Object

    @property
    def objects(self) -> list[Object]:
        """The listed objects, or the changed one."""
        found: list[Object] = self.body["items"] if self.kind == "LIST" else [self.body]
        return found


@asynccontextmanager
async def followed(
    cluster: Cluster, path: str, *, accept: str = JSON, **params: str | int
) -> AsyncIterator[AsyncIterator[Change]]:
    """Yield the list, then each change, for ever; after a gap the list again. Raises ClientError as a request does."""
    async with aclosing(_changes(cluster, path, accept=accept, **params)) as changes:
        yield changes


async def _changes(cluster: Cluster, path: str, **params: Any) -> AsyncGenerator[Change]:
    while True:
        listed = await cluster.get(path, **params)
        yield Change("LIST", listed)
        since = listed["metadata"]["resourceVersion"]
        with suppress(GoneError):
            while True:
                async with _not_too_often(), aclosing(_watch(cluster, path, since=since, **params)) as watch:
                    async for change in watch:
                        since = _version(change.body) or since
                        yield change


async def _watch(cluster: Cluster, path: str, *, since: str, **params: Any) -> AsyncGenerator[Change]:
    """Watch until the server ends it or the connection breaks. The next watch shows whether the server is reachable."""
    params |= {"watch": "1", "resourceVersion": since, "timeoutSeconds": WATCH_SECONDS}
    with suppress(ConnectionLostError):
        async with cluster.lines(path, pause_seconds=2 * WATCH_SECONDS, **params) as lines:
            async for line in lines:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise GoneError(Code.DEFECT, event["object"].get("message", ""))
                if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    yield Change(event["type"], event["object"])


@asynccontextmanager
async def _not_too_often() -> AsyncIterator[None]:
    """Wait before the next watch: the server may end each one at once."""
    clock = asyncio.get_running_loop().time
    begun = clock()
    try:
        yield
    except GoneError:
        await asyncio.sleep(begun + PAUSE_SECONDS - clock())
        raise
    await asyncio.sleep(begun + PAUSE_SECONDS - clock())


def _version(changed: Object) -> str:
    """The version of an object, or of the row of a table."""
    own: str = changed.get("metadata", {}).get("resourceVersion", "")
    rows = changed.get("rows") or []
    return own or (rows[0]["object"]["metadata"].get("resourceVersion", "") if rows else "")
