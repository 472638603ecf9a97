"""Forwards connections from a loopback port to a loopback port of another network namespace.

The control plane runs it as `python -m devcluster.forwarder PORT ANCHOR_PID`, for the API server. It listens first and
then enters the namespace: the listening socket stays in the old namespace, new connections are made in the new one.
`... PORT PID TARGET` reaches another port than the API server's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
from functools import partial
from pathlib import Path

from devcluster.names import API_PORT

CHUNK_BYTES = 1 << 18
CLONE_NEWNET = 0x40000000


def enter_network(pid: int) -> None:
    """Move this thread into the network namespace of `pid`. Raises OSError without the permission."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(Path(f"/proc/{pid}/ns/net"), os.O_RDONLY)
    try:
        if libc.setns(descriptor, CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
        await writer.wait_closed()


async def _serve_one(target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", target)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_carry(reader, server_writer), _carry(server_reader, writer))


async def _serve(listener: socket.socket, target: int) -> None:
    server = await asyncio.start_server(partial(_serve_one, target), sock=listener)
    await server.serve_forever()


def main(port: int, pid: int, target: int = API_PORT) -> None:
    """Serve until killed."""
    listener = socket.create_server(("127.0.0.1", port), backlog=512)
    enter_network(pid)
    asyncio.run(_serve(listener, target))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
