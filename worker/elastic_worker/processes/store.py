"""The store of the training processes' rendezvous: a torch TCPStore in a separate process that outlives them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from .children import Process


class Store(NamedTuple):
    """A store that listens on `port`, on all addresses of the pod."""

    port: int
    process: Process


def serve() -> NoReturn:
    """Serve a new store until killed. Writes the port to stdout, a pipe that the launcher reads."""
    from torch.distributed import TCPStore

    server = TCPStore(host_name="localhost", port=0, is_master=True, wait_for_workers=False)
    os.write(1, f"{server.port}\n".encode())
    os.dup2(2, 1)
    while True:
        signal.pause()
