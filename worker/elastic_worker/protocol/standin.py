"""Messages between the torchrun that a user's command calls and the launcher (`processes.standin`), one each way."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_worker.protocol.codec import Message


@dataclass(frozen=True)
class Python:
    """A Python interpreter: its path, the `prefix` of its environment, and its major and minor `version`."""

    executable: str
    prefix: str
    version: list[int]


@dataclass(frozen=True)
class Run(Message):
    """A call of torchrun: its arguments, working directory, environment variables and calling interpreter."""

    key = "argv"
    argv: list[str]
    directory: str
    environ: dict[str, str]
    python: Python | None = None


@dataclass(frozen=True)
class Ended(Message):
    """The exit code of what torchrun was to run, negative for a signal."""

    key = "code"
    code: int
