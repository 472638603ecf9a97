"""The TCP sockets of this process, found by the addresses at their ends.

gloo owns sockets and does not hand them out. A socket belongs to a mesh of connections if the mesh's own listener has
accepted it or if it leads to the listener of a peer. Descriptor numbers are never kept, as they are reused.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

DESCRIPTORS = "/proc/self/fd"
Address = tuple[str, int]
"""IP address and port."""


@dataclass(frozen=True)
class Mesh:
    """Connections between processes of which each has one listener. `peers` are the listeners of the others."""

    own: Address
    peers: frozenset[Address]


def listeners() -> set[Address]:
    """The addresses at which this process listens."""
    addresses = set()
    for number in _numbers():
        with _opened(number) as sock, suppress(OSError):
            if sock is not None and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                addresses.add(_address(sock.getsockname()))
    return addresses


def shut_down(mesh: Mesh) -> int:
    """Shut down all connections of the mesh, also those in use; returns their number.

    Their descriptors stay open until the owner closes them. The owner sees an end of file.
    """
    count = 0
    for number in _numbers():
        with _opened(number) as sock, suppress(OSError):
            if sock is not None and _belongs(sock, mesh):
                sock.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def route_to(host: str, port: int) -> str | None:
    """The local IP address of packets to `host`; None if there is no route."""
    with suppress(OSError):
        for family, kind, *_, target in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind) as sock:
                sock.connect(target)
                return _address(sock.getsockname())[0]
    return None


def _belongs(sock: socket.socket, mesh: Mesh) -> bool:
    return _address(sock.getpeername()) in mesh.peers or _address(sock.getsockname()) == mesh.own


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir(DESCRIPTORS)]  # noqa: PTH208  # names only, no paths


@contextmanager
def _opened(number: int) -> Iterator[socket.socket | None]:
    """A second descriptor of a TCP socket, closed at the end of the context; None for any other descriptor."""
    try:
        copy = os.dup(number)
    except OSError:
        yield None
        return
    try:
        sock = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        yield None
        return
    with sock:
        tcp = sock.type == socket.SOCK_STREAM and sock.family in (socket.AF_INET, socket.AF_INET6)
        yield sock if tcp else None


def _address(name: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    """The address, as IPv4 if an IPv6 socket shows an IPv4 one."""
    host = name[0]
    return (host[len("::ffff:") :] if host.startswith("::ffff:") else host), name[1]
