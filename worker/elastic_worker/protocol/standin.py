"""What the torchrun of a user's command and the launcher say to each other (`processes.standin`): a line each."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_worker.protocol.codec import Message


@dataclass(frozen=True)
class Run(Message):
    """A call of torchrun: its arguments, and where and in which environment it was called."""

    key = "argv"
    argv: list[str]
    directory: str
    environ: dict[str, str]


@dataclass(frozen=True)
class Ended(Message):
    """The exit code of what it was to run, negative for a signal."""

    key = "code"
    code: int
