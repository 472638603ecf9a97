"""The launcher's port: /healthz for the kubelet, /status for the operator, /metrics for Prometheus, and the place where
training processes report (`progress`).

A minimal HTTP/1.1: one request per connection. Time, size and number of connections are bounded, so that no
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
from elastic_worker.launcher.progress import MOST_BYTES, PATH, BadReportError, TrainerReports

log = logging.getLogger(__name__)

REQUEST_SECONDS = 2.0
REQUEST_BYTES = 8 << 10
MOST_CONNECTIONS = 64
LONGEST_LENGTH = 9
"""Digits of a Content-Length."""

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
}
_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"


class StatusServer:
    """Answers with the results of `status` (a dict) and `metrics` (Prometheus' text), called for each request.

    Without `reports` no training process can report.
    """

    def __init__(
        self,
        *,
        status: Callable[[], Mapping[str, Any]],
        metrics: Callable[[], str],
        reports: TrainerReports | None = None,
    ) -> None:
        self._status, self._metrics, self._reports = status, metrics, reports
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
            code, kind, body = await self._answer(request, reader)
        head = f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Cache-Control: no-store\r\nConnection: close\r\n\r\n" + body)
        await writer.drain()
        with contextlib.suppress(RuntimeError):
            writer.write_eof()
        if code != 200:  # closing with input unread would reset the connection before the answer is read
            await _read_away(reader)

    async def _answer(self, request: bytes, reader: asyncio.StreamReader) -> tuple[int, str, bytes]:
        first, *lines = request.decode("latin-1").split("\r\n")
        words = first.split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return 400, _TEXT, b"not an HTTP request\n"
        if words[:2] == ["POST", PATH] and self._reports is not None:
            return await _take(self._reports, _headers(lines), reader)
        if words[0] != "GET":
            return 405, _TEXT, f"only GET is answered, and POST to {PATH}\n".encode()
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


async def _take(
    reports: TrainerReports, headers: Mapping[str, str], reader: asyncio.StreamReader
) -> tuple[int, str, bytes]:
    if not reports.is_allowed(headers.get("authorization", "")):
        return 401, _TEXT, b"the token in the file that KUBEFLOW_TRAINER_SERVER_TOKEN names is needed\n"
    length = headers.get("content-length", "")
    if not length.isdecimal() or len(length) > LONGEST_LENGTH or int(length) > MOST_BYTES:
        return 400, _TEXT, f"Content-Length: write a number up to {MOST_BYTES}\n".encode()
    try:
        reports.take(await reader.readexactly(int(length)))
    except asyncio.IncompleteReadError:
        return 400, _TEXT, b"the body is shorter than its Content-Length\n"
    except BadReportError as error:
        return 400, _TEXT, f"{error}\n".encode(errors="replace")
    return 200, _JSON, b"{}\n"


def _headers(lines: list[str]) -> dict[str, str]:
    """The values by lower-case name; if a name occurs twice, the last value counts."""
    split = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, colon, value in split if colon}


def _bound(host: str | None, port: int) -> socket.socket:
    """A listening socket. A single one serves IPv4 and IPv6, so that port 0 becomes a single number."""
    if host is None and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # the kernel may know IPv6 and have it switched off
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in (host or "") else socket.AF_INET
    return socket.create_server((host or "", port), family=family)


def _bounded(status: Mapping[str, Any]) -> bytes:
    """The status as JSON. If it is too long for its readers, its oldest changes are left out, and then its members."""
    body = _encode(status)
    changes = list(status.get("changes") or [])
    while len(body) > contract.STATUS_LIMIT_BYTES and changes:
        changes.pop()
        body = _encode({**status, "changes": changes})
    if len(body) > contract.STATUS_LIMIT_BYTES:
        body = _encode({**status, "changes": [], "members": []})
    return body


def _encode(status: Mapping[str, Any]) -> bytes:
    # Command lines and names of files may contain bytes that are not text.
    text = json.dumps(status, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="replace") + b"\n"


async def _read_away(reader: asyncio.StreamReader) -> None:
    while await reader.read(REQUEST_BYTES):
        pass
