"""What a training process that uses the library tells its launcher.

What is said to the coordinator in the same words (`HANDED_ON`) is handed on when all processes of the pod have said it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elastic_worker.protocol import reports
from elastic_worker.protocol.codec import INSIDE, Message

Said = Any
"""Of how the training goes: a script may say anything, and what is shown of it is looked at first."""


@dataclass(frozen=True)
class Hello(Message):
    """The first line: which process of the pod it is, how it changes groups (`contract.IN_PLACE`, `RESTART`), and in
    which folder the library writes checkpoints, "" or None for none.
    """

    key = "localRank"
    local_rank: int
    kind: str
    checkpoints: str | None = None


@dataclass(frozen=True)
class Waits(Message):
    """It is in no group, and can be brought into one."""

    key = "waits"


@dataclass(frozen=True)
class Joined(Message):
    """It is in that group, with the state of the training."""

    key = "joined"
    generation: int


@dataclass(frozen=True)
class Stepped(Message):
    """The first step of that generation is done, `pause` seconds after the last one before it; 0.0 for none."""

    key = "stepped"
    pause: float
    generation: int


@dataclass(frozen=True)
class Progress(Message):
    """How far the training is, twice a second at most. `tick` counts boundaries, `median` is of a step's seconds."""

    key = "progress"
    shape = INSIDE
    step: Said = None
    epoch: Said = None
    samples: Said = None
    tick: Said = None
    median: Said = None
    goodput: Said = None
    loss: Said = None


@dataclass(frozen=True)
class Where(Message):
    """The answer to AskWhere: boundaries passed, seconds in this step, median of the steps; it too if a step hangs."""

    key = "where"
    shape = INSIDE
    tick: int
    seconds: float = 0.0
    median: float = 0.0


@dataclass(frozen=True)
class Lost(Message):
    """It can do no further step in that generation, as its peers are not reached."""

    key = "lost"
    generation: int


@dataclass(frozen=True)
class Saved(Message):
    """The answer to Save: the checkpoint is written."""

    key = "saved"


HANDED_ON: tuple[type[Message], ...] = (
    *reports.ANSWERS,
    reports.LastCheckpointStep,
    reports.CheckpointError,
)
ALL: tuple[type[Message], ...] = (Hello, Waits, Joined, Stepped, Progress, Where, Lost, Saved, *HANDED_ON)
