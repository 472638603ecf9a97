"""What the torchrun of a user's command and the launcher say to each other (`processes.standin`): a line each."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_worker.protocol.codec import Message


@dataclass(frozen=True)
class Python:
    """An interpreter by its path; `prefix` is that of its environment, `version` its major and minor number."""

    executable: str
    prefix: str
    version: list[int]


@dataclass(frozen=True)
class Run(Message):
    """A call of torchrun: its arguments, and where, in which environment and by which python it was called."""

    key = "argv"
    argv: list[str]
    directory: str
    environ: dict[str, str]
    python: Python | None = None


@dataclass(frozen=True)
class Ended(Message):
    """The exit code of what it was to run, negative for a signal."""

    key = "code"
    code: int
