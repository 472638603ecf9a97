"""Messages from a launcher to the coordinator: the state of the pod, events, and answers.

Each hello repeats the state (`STATE`), so that a restarted coordinator knows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elastic_worker.protocol.codec import BESIDE, INSIDE, Message, sent_as
from elastic_worker.protocol.orders import AttemptKey


@dataclass(frozen=True)
class Processes(Message):
    """The number of training processes that the pod runs."""

    key = "processes"
    count: int


@dataclass(frozen=True)
class CheckpointFolder(Message):
    """The folder in which the library writes checkpoints: masters leave their epochs there (109)."""

    key = "checkpointFolder"
    path: str


@dataclass(frozen=True)
class Warm(Message):
    """Whether the warm parent can start processes at once."""

    key = "warm"
    is_warm: bool


@dataclass(frozen=True)
class Leaving(Message):
    """The pod was asked to go: its processes end within that many seconds."""

    key = "leaving"
    seconds: float


@dataclass(frozen=True)
class StorePort(Message):
    """The port of a store in this pod that no group has used; 0 while there is none."""

    key = "store"
    port: int


@dataclass(frozen=True)
class Runs(Message):
    """The generation whose processes the pod has; 0 for none."""

    key = "runs"
    generation: int


@dataclass(frozen=True)
class Finished(Message):
    """The generation whose processes have exited with code 0 in this pod; 0 for none."""

    key = "finished"
    generation: int


@dataclass(frozen=True)
class Step(Message):
    """The number of optimizer steps since the job began."""

    key = "step"
    count: int


@dataclass(frozen=True)
class Ready(Message):
    """Whether all of the pod's processes can be brought into a group, and the generation that they are in (`joined`).

    `holds`: one of them has the state of the training. `change_mode` (`kind` in JSON): how they change groups
    (`contract.IN_PLACE`, `RESTART`), "" if they do not use the library.
    """

    key = "ready"
    is_ready: bool
    joined: int = 0
    holds: bool = False
    change_mode: str = field(default="", metadata=sent_as("kind"))


@dataclass(frozen=True)
class StuckRank:
    """A rank whose present step takes far too long: `seconds` since it began, after passing `boundary`."""

    generation: int
    rank: int
    boundary: int = field(metadata=sent_as("tick"))
    seconds: float


@dataclass(frozen=True)
class Stuck(Message):
    """The least advanced rank, if the present step of every process of the pod takes far too long; else None."""

    key = "stuck"
    rank: StuckRank | None


@dataclass(frozen=True)
class Idle(Message):
    """Seconds since any process of the pod did some work."""

    key = "idle"
    seconds: float


@dataclass(frozen=True)
class Unkillable(Message):
    """The process that SIGKILL does not end; "" for none."""

    key = "unkillable"
    process: str


@dataclass(frozen=True)
class Goodbye(Message):
    """The pod leaves."""

    key = "goodbye"


@dataclass(frozen=True)
class Started(Message):
    """All processes of that generation run in this pod."""

    key = "started"
    generation: int


@dataclass(frozen=True)
class Stopped(Message):
    """No process of that generation runs in this pod any more, except one that is `unkillable`.

    `lost`: steps since the last checkpoint; None if this pod does not see the checkpoints.
    """

    key = "stopped"
    generation: int
    step: int = 0
    lost: int | None = None
    unkillable: str = ""


@dataclass(frozen=True)
class Failed(Message):
    """A process failed `ago` seconds ago. `rank` is -1 if no process began. `last_lines` is what it printed last.

    `is_consequence`: it failed because a peer was lost.
    """

    key = "failed"
    shape = INSIDE
    generation: int | None = None
    rank: int = -1
    exit_code: int = -1
    message: str = "a training process has failed"
    ago: float = 0.0
    is_consequence: bool = False
    last_lines: str = ""


@dataclass(frozen=True)
class Aligned(Message):
    """The processes are frozen after a complete checkpoint (`marked`: one with a marker); False: none came in time."""

    key = "aligned"
    whole: bool
    marked: bool = False


@dataclass(frozen=True)
class StandsStill(Message):
    """The answer to StandStill: whether the processes are frozen; False while one writes a checkpoint."""

    key = "still"
    still: bool
    round: int


@dataclass(frozen=True)
class CheckpointStepReply(Message):
    """The answer to ProposeCheckpointStep: the most steps that a process has done, 0 if one does not count steps.

    `is_held`: all processes of the pod wait at the proposed step.
    """

    key = "saveReady"
    shape = INSIDE
    step: int
    is_held: bool
    round: int


@dataclass(frozen=True)
class Stepped(Message):
    """The first step of that generation is done, `pause` seconds after the last one before it; None: it had none."""

    key = "stepped"
    generation: int
    pause: float | None = None


@dataclass(frozen=True)
class Checkpoint(Message):
    """A checkpoint is complete: the count of failures in a row begins again."""

    key = "checkpoints"


@dataclass(frozen=True)
class LastCheckpointStep(Message):
    """The step of the newest complete checkpoint."""

    key = "lastCheckpointStep"
    step: int


@dataclass(frozen=True)
class CheckpointError(Message):
    """Why the last checkpoint failed, or why checkpoints cannot be watched; "" for no error."""

    key = "checkpointError"
    problem: str


@dataclass(frozen=True)
class CutOff(Message):
    """Processes of the pod can do no further step in that generation."""

    key = "cutOff"
    generation: int


@dataclass(frozen=True)
class Formed(Message):
    """The next group of that attempt is formed."""

    key = "formed"
    shape = BESIDE
    at: AttemptKey


@dataclass(frozen=True)
class Unformed(Message):
    """Why the next group of that attempt could not be formed."""

    key = "unformed"
    why: str
    at: AttemptKey


@dataclass(frozen=True)
class AtBoundary(Message):
    """The latest boundary that a process of the pod has passed."""

    key = "passed"
    boundary: int
    at: AttemptKey


@dataclass(frozen=True)
class Agreed(Message):
    """Whether all processes of the pod wait at the proposed boundary: none has passed it."""

    key = "agreed"
    is_agreed: bool
    boundary: int = field(metadata=sent_as("tick"))
    at: AttemptKey


@dataclass(frozen=True)
class SavedTogether(Message):
    """Whether all ranks' checkpoint is written."""

    key = "savedTogether"
    is_saved: bool
    at: AttemptKey


STATE: tuple[type[Message], ...] = (
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
    CheckpointStepReply,
    Stepped,
    Checkpoint,
    LastCheckpointStep,
    CheckpointError,
    CutOff,
)
ANSWERS: tuple[type[Message], ...] = (Formed, Unformed, AtBoundary, Agreed, SavedTogether)
