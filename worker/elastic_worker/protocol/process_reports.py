"""Messages from a training process that uses the library to its launcher.

The launcher forwards some of them to the coordinator (`FORWARDED`): answers only once all processes of the pod have
given theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elastic_worker.protocol import reports
from elastic_worker.protocol.codec import INSIDE, Message, sent_as

ScriptValue = Any
"""A value from the user's script, of any type: the launcher checks it before it shows it."""


@dataclass(frozen=True)
class Hello(Message):
    """The first line of a process: its local rank, and how it changes groups (`contract.IN_PLACE`, `RESTART`).

    `checkpoints` is the folder in which the library writes checkpoints, "" or None for none.
    """

    key = "localRank"
    local_rank: int
    change_mode: str = field(metadata=sent_as("kind"))
    checkpoints: str | None = None


@dataclass(frozen=True)
class Waits(Message):
    """The process is in no group, and can be brought into one."""

    key = "waits"


@dataclass(frozen=True)
class Joined(Message):
    """The process is in that group, with the state of the training."""

    key = "joined"
    generation: int


@dataclass(frozen=True)
class Stepped(Message):
    """The first step of that generation is done, `pause` seconds after the last one before it; 0.0: it had none."""

    key = "stepped"
    pause: float
    generation: int


@dataclass(frozen=True)
class Progress(Message):
    """The progress of the training, twice a second at most. `median` is the median duration of a step, in seconds.

    `percentage` (0 to 100) is the part that is done, `remaining` the seconds that the rest takes.
    """

    key = "progress"
    shape = INSIDE
    step: ScriptValue = None
    epoch: ScriptValue = None
    samples: ScriptValue = None
    boundary: ScriptValue = field(default=None, metadata=sent_as("tick"))
    median: ScriptValue = None
    goodput: ScriptValue = None
    loss: ScriptValue = None
    percentage: ScriptValue = None
    remaining: ScriptValue = None


@dataclass(frozen=True)
class Position(Message):
    """The answer to AskPosition, given also while a step hangs.

    `boundary` (`tick` in JSON): the latest one passed. `seconds`: time since the present step began. `median`: the
    median duration of a step, in seconds.
    """

    key = "where"
    shape = INSIDE
    boundary: int = field(metadata=sent_as("tick"))
    seconds: float = 0.0
    median: float = 0.0


@dataclass(frozen=True)
class Lost(Message):
    """The process can do no further step in that generation, since it does not reach its peers."""

    key = "lost"
    generation: int


@dataclass(frozen=True)
class SavedAlone(Message):
    """The answer to SaveAlone: the checkpoint is written."""

    key = "saved"


FORWARDED: tuple[type[Message], ...] = (
    *reports.ANSWERS,
    reports.LastCheckpointStep,
    reports.CheckpointError,
)
ALL: tuple[type[Message], ...] = (Hello, Waits, Joined, Stepped, Progress, Position, Lost, SavedAlone, *FORWARDED)
