"""One HTTP session to the API server: JSON in and out, refusals as exceptions, writes fenced by the lease.

Every write asks how long this process may still write; the answer is also the write's time limit. It asks again when
its bytes are sent, because making a connection and long turns of the event loop take time in between (90). So a process
that has lost its lease sends no write, and waits for none beyond its lease. The session repeats no request: callers do,
because they know the effect of a repetition.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter

from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.connection import Connection
from elastic_operator.cluster.errors import (
    ClusterError,
    Fenced,
    Unauthorized,
    Unreachable,
    api_error,
    has_unknown_outcome,
)
from elastic_operator.cluster.sockets import Sockets
from elastic_operator.cluster.write_queue import Urgency, WriteQueue

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
"""The kind of patch that changes one condition of a pod and leaves the others as they are."""

MAX_WRITES = 16
"""The most writes in flight. Further writes wait: deletions are sent first, creations last (147). More writes would not
be answered sooner, but run into their own time limit on a slow server (28).
"""
WRITE_SECONDS = 8.0
REQUEST_SECONDS = 15.0
_CONNECT_SECONDS = 5.0
_IDLE_SECONDS = 75.0
"""Shorter than the API server's 90 s: if the server closes a connection during a POST, its outcome is unknown."""
_READ_BUFFER = 1 << 20

NOT_OURS = "this process does not hold the lease (any more)"

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class _Body(aiohttp.BytesPayload):
    """A write's body. Its headers are sent with it; or neither is, and the connection ends."""

    def __init__(self, body: bytes, remaining: Callable[[], float]) -> None:
        super().__init__(body)
        self._remaining = remaining

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Send the body, if this process may still write."""
        if self._remaining() <= 0:
            raise Fenced(NOT_OURS)
        await super().write_with_length(writer, content_length)


def _urgency(method: str, path: str, params: Mapping[str, str] | None) -> Urgency:
    """The urgency of a write (147). A job's first EndpointSlice counts as a change, because pods wait for it to reach
    their master. Evictions wait for the answer to a dry run (139).
    """
    if _is_dry_run(params):
        return Urgency.BEFORE_DELETE
    if method == "POST" and not path.endswith("/endpointslices"):
        return Urgency.CREATE
    return Urgency.DELETE if method == "DELETE" else Urgency.CHANGE


def _kind(method: str, path: str, params: Mapping[str, str] | None = None) -> str:
    """The method and the resource, for example "POST pods": such writes take about the same time. A dry run is of
    another kind, because the API server stores nothing.
    """
    below_version = path.split("/")[3 if path.startswith("/api/") else 4 :]
    in_namespace = below_version[0] == "namespaces" and len(below_version) > 2
    kind = f"{method} {below_version[2 if in_namespace else 0]}"
    return f"{kind} (dry run)" if _is_dry_run(params) else kind


def _is_dry_run(params: Mapping[str, str] | None) -> bool:
    return params is not None and "dryRun" in params


class Session:
    """Requests to one API server.

    Args:
        connection: The server's address, and the credentials.
        on_request: Called with verb and outcome of each request when it ends, of a watch after minutes. The outcome is
            the HTTP status as text, or `error`, `timeout` or `fenced`. A body that breaks off after the status 200 is
            an `error` or a `timeout`.
        http: The transport of the requests; by default connections over TCP.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        on_request: Callable[[str, str], None] = lambda _verb, _code: None,
        http: aiohttp.ClientSession | None = None,
    ) -> None:
        self.remaining: Callable[[], float] = lambda: math.inf
        """How many seconds this process may still write; at zero or less, writes are refused with `Fenced`. Set by the
        owner of the lease. Without a lease there is no limit.
        """
        self.outcome_unknown_at = -math.inf
        """When a write last ended with an unknown outcome (monotonic), as also by cancellation."""
        self._connection = connection
        self._on_request = on_request
        self.writes = WriteQueue(MAX_WRITES)
        self.clock = ServerClock()
        self._sockets = Sockets()
        self._http = http or self._over_tcp(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End all connections; those of aborted requests get a moment to end TLS."""
        await self._http.close()
        await self._sockets.closed()

    def _over_tcp(self, connection: Connection) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                keepalive_timeout=_IDLE_SECONDS,
                ssl=connection.tls if connection.tls else True,
                socket_factory=self._sockets.make,
            ),
            headers={
                "User-Agent": f"elastic-operator/{version('elastic-pytorch-operator')}",
                # Logs are plain text.
                "Accept": f"{JSON}, */*",
                # Inflating costs this process more than the network saves.
                "Accept-Encoding": "identity",
            },
            read_bufsize=_READ_BUFFER,
        )

    async def get(
        self, path: str, *, params: Mapping[str, str] | None = None, timeout: float = REQUEST_SECONDS
    ) -> dict[str, Any]:
        """GET an object, within `timeout` seconds. Raises ApiError, Unreachable."""
        return _object(await self.get_bytes(path, params=params, timeout=timeout))

    async def get_bytes(
        self, path: str, *, params: Mapping[str, str] | None = None, timeout: float = REQUEST_SECONDS, accept: str = ""
    ) -> bytes:
        """GET a body as it is, within `timeout` seconds. Raises ApiError, Unreachable.

        `accept` is the media type to ask for, "" for the server's own choice.
        """
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT_SECONDS)
        headers = await self._headers() | ({"Accept": accept} if accept else {})
        async with self._request("GET", path, params=params, timeout=limits, headers=headers) as response:
            return await response.read()

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], inactivity: float
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """GET an open-ended body. Silence for `inactivity` seconds raises Unreachable, as do lost connections."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=inactivity)
        headers = await self._headers()
        async with self._request("GET", path, params=params, timeout=limits, headers=headers, verb="WATCH") as response:
            yield response.content

    async def post(self, path: str, body: object, *, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Create an object. Raises ApiError, Unreachable, Fenced."""
        return await self._write("POST", path, body, params=params)

    async def put(self, path: str, body: object) -> dict[str, Any]:
        """Replace an object. Raises ApiError, Unreachable, Fenced."""
        return await self._write("PUT", path, body)

    async def patch(
        self, path: str, body: object, *, content_type: str = MERGE_PATCH, urgency: Urgency = Urgency.CHANGE
    ) -> dict[str, Any]:
        """Patch an object. Raises ApiError, Unreachable, Fenced."""
        return await self._write("PATCH", path, body, content_type=content_type, urgency=urgency)

    async def delete(self, path: str, options: object) -> dict[str, Any]:
        """Delete an object, under DeleteOptions. Raises ApiError, Unreachable, Fenced."""
        return await self._write("DELETE", path, options)

    async def _write(
        self,
        method: str,
        path: str,
        body: object,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        urgency: Urgency | None = None,
    ) -> dict[str, Any]:
        data = _Body(msgspec.json.encode(body), lambda: self.remaining())
        urgency = _urgency(method, path, params) if urgency is None else urgency
        async with self.writes.turn(urgency, _kind(method, path, params)):
            headers = await self._headers(content_type=content_type)
            limits = aiohttp.ClientTimeout(total=min(WRITE_SECONDS, self._permitted(method)))
            try:
                async with self._request(
                    method, path, params=params, timeout=limits, headers=headers, data=data
                ) as response:
                    return _object(await response.read())
            except BaseException as error:
                if not isinstance(error, ClusterError) or has_unknown_outcome(error):
                    self.outcome_unknown_at = time.monotonic()
                raise

    def _permitted(self, method: str) -> float:
        seconds = self.remaining()
        if seconds <= 0:
            self._on_request(method, "fenced")
            raise Fenced(NOT_OURS)
        return seconds

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,
        headers: Mapping[str, str],
        data: _Body | None = None,
        verb: str = "",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        verb = verb or method
        sent, outcome = time.monotonic(), ""
        try:
            async with self._http.request(
                method,
                self._connection.base_url + path,
                params=params,
                data=data,
                headers=headers,
                timeout=timeout,
                server_hostname=self._connection.server_hostname,
                allow_redirects=False,
            ) as response:
                self.clock.sample(response.headers.get("Date"), sent=sent, received=time.monotonic())
                outcome = str(response.status)
                try:
                    if response.status >= 300:
                        await self._refuse(response)
                    yield response
                finally:
                    _abandon(response)
        except TimeoutError as error:
            outcome = "timeout"
            raise Unreachable(f"{verb} {path}: no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            outcome = "error"
            raise Unreachable(f"{verb} {path}: {error or type(error).__name__}") from error
        finally:
            if outcome:  # a request that was cancelled before its answer has none
                self._on_request(verb, outcome)

    async def _refuse(self, response: aiohttp.ClientResponse) -> None:
        error = api_error(response.status, await response.read(), retry_after=response.headers.get("Retry-After"))
        if isinstance(error, Unauthorized):
            self._connection.credentials.refused()
        raise error

    async def _headers(self, *, content_type: str | None = None) -> dict[str, str]:
        try:
            authorization = await self._connection.credentials.header()
        except OSError as error:
            raise Unreachable(f"credentials: {error}") from error
        headers = {"Content-Type": content_type} if content_type else {}
        return headers | ({"Authorization": authorization} if authorization else {})


def _abandon(response: aiohttp.ClientResponse) -> None:
    """Drop at once the connection of an answer that was not read to its end. An orderly end of TLS would wait for the
    other side, whose silence is the usual reason for this call.
    """
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


def _object(body: bytes) -> dict[str, Any]:
    """The object in a successful answer. A proxy may answer with a page of its own instead."""
    try:
        return _decode(body)
    except msgspec.DecodeError as error:
        raise Unreachable(f"the answer is not the API server's: {error}") from error
