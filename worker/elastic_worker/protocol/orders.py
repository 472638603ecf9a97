"""Messages from the coordinator to a launcher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from elastic_worker.contract import EXIT_DO_NOT_RETRY
from elastic_worker.protocol.codec import BESIDE, INSIDE, Message

AttemptKey = list[int]
"""Names one attempt at a change in place: the number of the next generation, and the number of the attempt."""


class GenerationRecord(TypedDict, total=False):
    """A generation as JSON: a launcher's `part` alone, or for earlier releases all other fields (`coordinator.part`).

    `wish` is the number of the membership for which the generation formed, by its name of earlier releases.
    """

    part: dict[str, Any]
    number: int
    epoch: int
    wish: int
    pods: list[dict[str, Any]]
    reason: str
    failures: int
    step: int
    store_port: int


@dataclass(frozen=True)
class Form(Message):
    """Start the processes of a generation, after the end of those of another one."""

    key = "form"
    group: GenerationRecord


@dataclass(frozen=True)
class Align(Message):
    """Freeze the processes right after the next complete checkpoint, and report Aligned.

    The checkpoint has to begin within `seconds`, and to be complete within `last_call` seconds; None: no limit.
    """

    key = "align"
    seconds: float | None = None
    last_call: float | None = None


@dataclass(frozen=True)
class StandStill(Message):
    """Processes of another pod are frozen right after a checkpoint: freeze yours too, unless they are writing one."""

    key = "still"
    shape = INSIDE
    round: int
    marked: bool


@dataclass(frozen=True)
class ProposeCheckpointStep(Message):
    """Hold the processes after that step, where the script may be asked for a checkpoint; 0: hold none."""

    key = "askSave"
    shape = INSIDE
    round: int
    step: int = 0


@dataclass(frozen=True)
class RequestCheckpoint(Message):
    """Ask the script for a checkpoint after the step at which all processes are held; 0: at once."""

    key = "saveNow"
    step: int


@dataclass(frozen=True)
class Resume(Message):
    """The planned change is given up: stop waiting for a checkpoint."""

    key = "resume"


@dataclass(frozen=True)
class Stop(Message):
    """End the processes of that generation within `seconds`; with `dump` their stacks are logged first."""

    key = "stop"
    generation: int
    seconds: float = 5.0
    dump: bool = False


@dataclass(frozen=True)
class Done(Message):
    """All processes of the job have exited with code 0."""

    key = "done"


@dataclass(frozen=True)
class Fail(Message):
    """The job has failed: exit with `exit_code`. `rank` of `pod` failed first, with `script_exit_code`.

    `last_lines` is what that process printed last.
    """

    key = "fail"
    shape = INSIDE
    exit_code: int = EXIT_DO_NOT_RETRY
    rank: int = -1
    message: str = "the job has failed"
    pod: str = ""
    script_exit_code: int = -1
    last_lines: str = ""


@dataclass(frozen=True)
class Leave(Message):
    """The pod may end, `after` seconds from now; with `save` its first process writes a checkpoint first."""

    key = "leave"
    shape = BESIDE
    save: bool = False
    after: float = 0.0


@dataclass(frozen=True)
class Candidates(Message):
    """Start the missing processes: they are candidates for a training group."""

    key = "candidates"


@dataclass(frozen=True)
class Host(Message):
    """Keep a store ready in which the next group can meet (125)."""

    key = "host"


@dataclass(frozen=True)
class Prepare(Message):
    """Form that group beside the one that trains; `broken`: the latter can do no further step."""

    key = "prepare"
    shape = INSIDE
    group: GenerationRecord
    at: AttemptKey
    broken: bool = False


@dataclass(frozen=True)
class AskBoundary(Message):
    """Report the latest boundary that a process of the pod has passed."""

    key = "ask"
    at: AttemptKey


@dataclass(frozen=True)
class Propose(Message):
    """All processes switch groups at that boundary: report whether yours can wait there."""

    key = "propose"
    boundary: int
    at: AttemptKey


@dataclass(frozen=True)
class Bind(Message):
    """All have agreed: switch to that group, or wait in none.

    With `save` the processes write a checkpoint together instead, and wait to be stopped.
    """

    key = "bind"
    group: GenerationRecord | None
    at: AttemptKey
    save: bool | None = None


@dataclass(frozen=True)
class Cancel(Message):
    """The change in place is given up: continue training."""

    key = "cancel"


@dataclass(frozen=True)
class Broken(Message):
    """That generation has lost a pod and can do no further step: keep the state in memory."""

    key = "broken"
    generation: int


@dataclass(frozen=True)
class Status(Message):
    """The content of the master's /status; sent to the master's launcher only."""

    key = "status"
    status: dict[str, Any]


ALL: tuple[type[Message], ...] = (
    Status,
    Form,
    Align,
    StandStill,
    ProposeCheckpointStep,
    RequestCheckpoint,
    Resume,
    Stop,
    Done,
    Fail,
    Leave,
    Candidates,
    Host,
    Prepare,
    AskBoundary,
    Propose,
    Cancel,
    Broken,
    Bind,
)
