"""The sockets of an HTTP session. Sockets of aborted requests outlive the session, because TLS takes time to close."""

from __future__ import annotations

import asyncio
import socket
from asyncio import sslproto
from contextlib import suppress
from weakref import WeakSet

import aiohttp

CLOSE_SECONDS = 1.0
TLS_BUFFER = 64 * 1024
"""The bytes that a TLS connection receives and reads at once (215); a TLS record has at most 16 KiB."""


def use_small_tls_buffers() -> None:
    """Have each new TLS connection of asyncio take less memory (215)."""
    sslproto.SSLProtocol.max_size = TLS_BUFFER


class Sockets:
    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def make(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """A socket for that address: the `socket_factory` of a TCPConnector."""
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._made.add(made)
        return made

    async def closed(self) -> None:
        """Wait until all sockets are closed, but no longer than CLOSE_SECONDS."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while any(made.fileno() >= 0 for made in self._made):  # noqa: ASYNC110 # no event says so
                    await asyncio.sleep(0.01)
