"""The launcher's port: /healthz for the kubelet, /status for the operator, /metrics for Prometheus.

A minimal HTTP/1.1: GET only, one request per connection. Time, size and number of connections are bounded, so that no
client can occupy the port or fill the memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any

from elastic_worker import contract

log = logging.getLogger(__name__)

REQUEST_SECONDS = 2.0
REQUEST_BYTES = 8 << 10
MOST_CONNECTIONS = 64

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error"}
_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"


class StatusServer:
    """Answers with the results of `status` (a dict) and `metrics` (Prometheus' text), called for each request."""

    def __init__(self, *, status: Callable[[], Mapping[str, Any]], metrics: Callable[[], str]) -> None:
        self._status, self._metrics = status, metrics
        self._server: asyncio.AbstractServer | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self.port = 0
        """The port on which it listens, once open."""

    async def open(self, port: int, host: str | None = None) -> None:
        """Listen on `port`, on all addresses by default; 0 takes any free one. Raises OSError, which names the port."""
        try:
            self._server = await asyncio.start_server(self._serve, sock=_bound(host, port), limit=REQUEST_BYTES)
        except OSError as error:
            why = error.strerror or str(error)
            raise OSError(error.errno, f"port {port} cannot be used for /status: {why}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._server is None:
            return
        self._server.close()
        for writer in list(self._connections):
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MOST_CONNECTIONS:
            writer.close()
            return
        self._connections.add(writer)
        try:
            await asyncio.wait_for(self._talk(reader, writer), REQUEST_SECONDS)
        except (asyncio.TimeoutError, OSError):
            writer.transport.abort()
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            code, kind, body = 400, _TEXT, b"the request is too long\n"
        else:
            code, kind, body = self._answer(request)
        head = f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Cache-Control: no-store\r\nConnection: close\r\n\r\n" + body)
        await writer.drain()
        with contextlib.suppress(RuntimeError):
            writer.write_eof()
        if code == 400:  # closing with input unread would reset the connection before the answer is read
            await _read_away(reader)

    def _answer(self, request: bytes) -> tuple[int, str, bytes]:
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return 400, _TEXT, b"not an HTTP request\n"
        if words[0] != "GET":
            return 405, _TEXT, b"only GET is answered\n"
        try:
            return self._page(words[1].partition("?")[0])
        except Exception:  # an error in a page must not end the training
            log.exception("no answer to %s", words[1])
            return 500, _TEXT, b"see the log\n"

    def _page(self, path: str) -> tuple[int, str, bytes]:
        if path == "/healthz":
            return 200, _TEXT, b"ok\n"
        if path == "/status":
            return 200, _JSON, _bounded(self._status())
        if path == "/metrics":
            return 200, _METRICS, self._metrics().encode()
        return 404, _TEXT, b"/healthz, /status, /metrics\n"


def _bound(host: str | None, port: int) -> socket.socket:
    """A listening socket. A single one serves IPv4 and IPv6, so that port 0 becomes a single number."""
    if host is None and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # the kernel may know IPv6 and have it switched off
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in (host or "") else socket.AF_INET
    return socket.create_server((host or "", port), family=family)


def _bounded(status: Mapping[str, Any]) -> bytes:
    """The status as JSON, without its oldest changes, and then without its members, if it is longer than is read."""
    body = _encode(status)
    changes = list(status.get("changes") or [])
    while len(body) > contract.STATUS_LIMIT_BYTES and changes:
        changes.pop()
        body = _encode({**status, "changes": changes})
    if len(body) > contract.STATUS_LIMIT_BYTES:
        body = _encode({**status, "changes": [], "members": []})
    return body


def _encode(status: Mapping[str, Any]) -> bytes:
    # Command lines and names of files may hold bytes that are no text.
    text = json.dumps(status, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="replace") + b"\n"


async def _read_away(reader: asyncio.StreamReader) -> None:
    while await reader.read(REQUEST_BYTES):
        pass
