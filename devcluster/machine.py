"""What the machine must be and can give: Linux, root, a free loopback port."""

from __future__ import annotations

import os
import platform
import socket

from devcluster import names
from devcluster.errors import DevclusterError

PORTS_TRIED = 100


def check() -> None:
    """Raises DevclusterError, with what to do instead, where no local cluster can run."""
    remedy = "use an existing cluster instead: set KUBECONFIG to its file (kind and minikube write one)"
    if platform.system() != "Linux":
        raise DevclusterError(f"the local cluster needs Linux, this is {platform.system()}; {remedy}")
    if os.geteuid() != 0:
        raise DevclusterError(f"the local cluster needs root (try sudo); or {remedy}")


def free_port(name: str) -> int:
    """The first free loopback port from the cluster's own on. Raises DevclusterError when none is free."""
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
    raise DevclusterError(f"no free loopback port from {first} to {last} for cluster {name!r}")
