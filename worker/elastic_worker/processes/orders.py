"""How the launcher and the warm parent reach each other.

The parent gets its orders as a file, as its name on the command line; then both ends of a socket pair carry one message
in each packet (`protocol.warm_parent`).
"""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from elastic_worker.protocol.codec import Message

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


def encode(message: Message) -> bytes:
    """One packet; what would not fit is a programmer's error."""
    data = json.dumps(message.to_json()).encode()
    assert len(data) <= MESSAGE_BYTES, message
    return data
