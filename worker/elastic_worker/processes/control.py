"""The control channel between the launcher and the warm parent, and the parent's configuration.

The launcher writes the configuration to a file, and names the file on the parent's command line. After that both sides
use a socket pair with one message in each packet (`protocol.warm_parent`).
"""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from elastic_worker.protocol.codec import Message

MESSAGE_BYTES = 65_536


@dataclass(frozen=True)
class ParentConfig:
    """What a warm parent needs to know at its start."""

    launcher: int
    """The launcher's process id."""
    control: int
    """Number of the inherited file descriptor of the parent's end of the socket pair."""
    modules: tuple[str, ...]
    """The modules to import, in this order."""

    def write(self, path: Path) -> None:
        """Write the file that the parent reads."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def take(cls, path: Path) -> ParentConfig:
        """Read the file and remove it."""
        fields = json.loads(path.read_text())
        path.unlink()
        return cls(fields["launcher"], fields["control"], tuple(fields["modules"]))


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a new control channel. Programs that are executed inherit neither."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def encode(message: Message) -> bytes:
    """The packet that carries this message. One that is too long is a programmer's error."""
    data = json.dumps(message.to_json()).encode()
    assert len(data) <= MESSAGE_BYTES, message
    return data
