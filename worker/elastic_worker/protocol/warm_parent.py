"""Messages between a launcher and its warm parent, one in each packet. Both are of the same release.

A request carries two file descriptors: the new process's stdout and stderr.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastic_worker.protocol.codec import Message


@dataclass(frozen=True)
class Fork(Message):
    """The request numbered `id`: fork a process that takes this ticket."""

    key = "ticket"
    ticket: str
    id: int


@dataclass(frozen=True)
class Importing(Message):
    """The parent is about to import that module."""

    key = "importing"
    module: str


@dataclass(frozen=True)
class NotImported(Message):
    """The parent cannot import that module; it continues with the others."""

    key = "failed"
    module: str
    why: str


@dataclass(frozen=True)
class Unfit(Message):
    """The parent exits, since it cannot be forked with that module loaded."""

    key = "unfit"
    module: str
    why: str


@dataclass(frozen=True)
class Imported(Message):
    """The parent has imported all modules: processes can be requested."""

    key = "ready"


@dataclass(frozen=True)
class NotForked(Message):
    """The answer to request `id`: why there is no process."""

    key = "error"
    why: str
    id: int


@dataclass(frozen=True)
class Forked(Message):
    """The answer to request `id`, sent by the new process itself as soon as it is the launcher's child."""

    key = "pid"
    pid: int
    id: int


FROM_LAUNCHER: tuple[type[Message], ...] = (Fork,)
FROM_PARENT: tuple[type[Message], ...] = (Importing, NotImported, Unfit, Imported, NotForked, Forked)
