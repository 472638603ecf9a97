"""The requirements of the machine: Linux, root, the needed Debian packages, a free loopback port."""

from __future__ import annotations

import os
import platform
import socket

from devcluster import names, packages
from devcluster.errors import DevclusterError
from devcluster.progress import Progress

PORTS_TRIED = 100


def check() -> None:
    """Raise DevclusterError with the remedy if no local cluster can run."""
    if platform.system() != "Linux":
        raise DevclusterError(
            f"the local cluster needs Linux, this is {platform.system()}: use a virtual machine with Debian"
        )
    if os.geteuid() != 0:
        raise DevclusterError("the local cluster needs root, for its nodes are made of namespaces: try it with sudo")


def ensure(progress: Progress) -> None:
    """Check the machine, and install missing packages. Commands that build or start something begin with this."""
    check()
    packages.ensure(progress)


def free_port(name: str) -> int:
    """The first free loopback port, from the cluster's first port on. Raises DevclusterError if none is free."""
    first = names.first_port(name)
    for port in range(first, first + PORTS_TRIED):
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    last = first + PORTS_TRIED - 1
    raise DevclusterError(
        f"the loopback ports {first} to {last} of cluster {name!r} are all taken: choose another name (NAME=)"
    )
