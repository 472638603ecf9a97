"""Messages between the launcher and the warm parent.

The parent gets its orders as a file, as its name on the command line; then both ends of a socket pair carry one JSON
object per message. Launcher to parent: `{"id", "ticket"}` with two descriptors, the new process's stdout and stderr.
Parent to launcher: `{"importing": MODULE}`, `{"failed": MODULE, "why"}` (the rest goes on), `{"unfit": MODULE, "why"}`
(the parent ends: it cannot be forked with that module in it), `{"ready": true}`, `{"id", "error"}` when a fork failed.
The forked process itself says `{"id", "pid"}` as soon as it is the launcher's child.
"""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MESSAGE_BYTES = 65_536


@dataclass(frozen=True)
class Orders:
    """`control` is the number of the inherited descriptor of the parent's end."""

    launcher: int
    control: int
    modules: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Leave them for the parent."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def take(cls, path: Path) -> Orders:
        """Read them and remove the file."""
        fields = json.loads(path.read_text())
        path.unlink()
        return cls(fields["launcher"], fields["control"], tuple(fields["modules"]))


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a control channel, neither inherited by programs that are executed."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def encode(message: dict[str, Any]) -> bytes:
    """One message; what would not fit is a programmer's error."""
    data = json.dumps(message).encode()
    assert len(data) <= MESSAGE_BYTES, message
    return data
