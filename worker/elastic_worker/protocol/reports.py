"""What a launcher tells the coordinator: what is so, what has happened, and answers.

What is so (`LASTING`) is said with each hello as well, so that a coordinator that starts anew knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elastic_worker.protocol.codec import BESIDE, INSIDE, Message
from elastic_worker.protocol.orders import Key


@dataclass(frozen=True)
class Processes(Message):
    """How many training processes the pod runs."""

    key = "processes"
    count: int


@dataclass(frozen=True)
class CheckpointFolder(Message):
    """Where the library writes checkpoints: masters leave their epochs there (109)."""

    key = "checkpointFolder"
    path: str


@dataclass(frozen=True)
class Warm(Message):
    """Whether processes can be started at once."""

    key = "warm"
    is_warm: bool


@dataclass(frozen=True)
class Leaving(Message):
    """The pod was told to go: its processes end within so many seconds."""

    key = "leaving"
    seconds: float


@dataclass(frozen=True)
class StorePort(Message):
    """Where the pod serves a store that no group has used; 0 while there is none."""

    key = "store"
    port: int


@dataclass(frozen=True)
class Runs(Message):
    """The generation whose processes the pod has; 0 for none."""

    key = "runs"
    generation: int


@dataclass(frozen=True)
class Finished(Message):
    """The generation whose processes have ended well here; 0 for none."""

    key = "finished"
    generation: int


@dataclass(frozen=True)
class Step(Message):
    """Optimizer steps done since the job began."""

    key = "step"
    count: int


@dataclass(frozen=True)
class Ready(Message):
    """Whether all of the pod's processes can be brought into a group, and the generation that they are in.

    `holds`: one of them has the state of the training. `kind`: how they change groups (`contract.IN_PLACE`, `RESTART`).
    """

    key = "ready"
    is_ready: bool
    joined: int = 0
    holds: bool = False
    kind: str = ""


@dataclass(frozen=True)
class Stuck(Message):
    """The rank whose step takes far too long, where all of the pod's do: generation, rank, tick, seconds; else None."""

    key = "stuck"
    rank: dict[str, Any] | None


@dataclass(frozen=True)
class Idle(Message):
    """Seconds since any process of the pod did something."""

    key = "idle"
    seconds: float


@dataclass(frozen=True)
class Unkillable(Message):
    """Which process SIGKILL does not end; "" for none."""

    key = "unkillable"
    process: str


@dataclass(frozen=True)
class Goodbye(Message):
    """The pod leaves of its own word."""

    key = "goodbye"


@dataclass(frozen=True)
class Started(Message):
    """All processes of that generation run here."""

    key = "started"
    generation: int


@dataclass(frozen=True)
class Stopped(Message):
    """None of that generation runs here any more, but for one that is `unkillable`.

    `lost`: steps since the last checkpoint; None where this pod does not see the checkpoints.
    """

    key = "stopped"
    generation: int
    step: int = 0
    lost: int | None = None
    unkillable: str = ""


@dataclass(frozen=True)
class Failed(Message):
    """A process has ended badly, `ago` seconds ago; `is_consequence`: since a peer was lost. `rank` -1: none began."""

    key = "failed"
    shape = INSIDE
    generation: int | None = None
    rank: int = -1
    exit_code: int = -1
    message: str = "a training process has failed"
    ago: float = 0.0
    is_consequence: bool = False


@dataclass(frozen=True)
class Aligned(Message):
    """The processes stand right after a complete checkpoint, by its marker or not; False: none came in time."""

    key = "aligned"
    whole: bool
    marked: bool = False


@dataclass(frozen=True)
class StandsStill(Message):
    """The answer to StandStill: False where a checkpoint is being written."""

    key = "still"
    still: bool
    round: int


@dataclass(frozen=True)
class SaveReady(Message):
    """The answer to AskSave: the most steps that a process has done, 0 where one counts none; whether all will wait."""

    key = "saveReady"
    shape = INSIDE
    step: int
    is_held: bool
    round: int


@dataclass(frozen=True)
class Stepped(Message):
    """The first step of that generation is done; `pause` seconds after the last one before it, if there was one."""

    key = "stepped"
    generation: int
    pause: float | None = None


@dataclass(frozen=True)
class Checkpoint(Message):
    """One was completed: failures in a row are counted anew."""

    key = "checkpoints"


@dataclass(frozen=True)
class LastCheckpointStep(Message):
    """The step of the newest complete checkpoint."""

    key = "lastCheckpointStep"
    step: int


@dataclass(frozen=True)
class CheckpointError(Message):
    """Why the last checkpoint failed, or cannot be looked for; "" if it can."""

    key = "checkpointError"
    problem: str


@dataclass(frozen=True)
class CutOff(Message):
    """Processes of the pod can do no further step in that generation."""

    key = "cutOff"
    generation: int


@dataclass(frozen=True)
class Formed(Message):
    """The group of that change is formed."""

    key = "formed"
    shape = BESIDE
    at: Key


@dataclass(frozen=True)
class Unformed(Message):
    """Why it is not."""

    key = "unformed"
    why: str
    at: Key


@dataclass(frozen=True)
class Passed(Message):
    """Boundaries that a process of the pod has passed, the most of them."""

    key = "passed"
    boundaries: int
    at: Key


@dataclass(frozen=True)
class Agreed(Message):
    """Whether all wait at the boundary that was proposed (`tick`), as none has passed it."""

    key = "agreed"
    is_agreed: bool
    tick: int
    at: Key


@dataclass(frozen=True)
class SavedTogether(Message):
    """Whether the checkpoint of all ranks is written."""

    key = "savedTogether"
    is_saved: bool
    at: Key


LASTING: tuple[type[Message], ...] = (
    Processes,
    CheckpointFolder,
    Warm,
    Leaving,
    StorePort,
    Runs,
    Finished,
    Step,
    Ready,
    Stuck,
    Idle,
    Unkillable,
)
EVENTS: tuple[type[Message], ...] = (
    Goodbye,
    Started,
    Stopped,
    Failed,
    Aligned,
    StandsStill,
    SaveReady,
    Stepped,
    Checkpoint,
    LastCheckpointStep,
    CheckpointError,
    CutOff,
)
ANSWERS: tuple[type[Message], ...] = (Formed, Unformed, Passed, Agreed, SavedTogether)
