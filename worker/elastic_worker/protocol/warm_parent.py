"""What a launcher and its warm parent say to each other: each message is one packet, both are of the same release.

A request comes with two descriptors, the new process's stdout and stderr.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastic_worker.protocol.codec import Message


@dataclass(frozen=True)
class Fork(Message):
    """Make a process that takes this ticket; `id` is the request's number."""

    key = "ticket"
    ticket: str
    id: int


@dataclass(frozen=True)
class Importing(Message):
    """That module is about to be imported."""

    key = "importing"
    module: str


@dataclass(frozen=True)
class NotImported(Message):
    """That module cannot be imported; the rest goes on."""

    key = "failed"
    module: str
    why: str


@dataclass(frozen=True)
class Unfit(Message):
    """The parent ends, as it cannot be forked with that module in it."""

    key = "unfit"
    module: str
    why: str


@dataclass(frozen=True)
class Imported(Message):
    """All modules are; processes can be asked for."""

    key = "ready"


@dataclass(frozen=True)
class NotForked(Message):
    """The answer to that request: why there is no process."""

    key = "error"
    why: str
    id: int


@dataclass(frozen=True)
class Forked(Message):
    """The answer to that request, by the new process itself as soon as it is the launcher's child."""

    key = "pid"
    pid: int
    id: int


FROM_LAUNCHER: tuple[type[Message], ...] = (Fork,)
FROM_PARENT: tuple[type[Message], ...] = (Importing, NotImported, Unfit, Imported, NotForked, Forked)
