"""What the coordinator tells a launcher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elastic_worker.contract import EXIT_DO_NOT_RETRY
from elastic_worker.protocol.codec import BESIDE, INSIDE, Message

Group = dict[str, Any]
"""A launcher's part of a generation, or for launchers of earlier releases all of it (`coordinator.part`)."""
Key = list[int]
"""Of a change in place: the generation to be, and the number of the attempt."""


@dataclass(frozen=True)
class Form(Message):
    """Start the processes of a generation; those of another one are stopped first."""

    key = "form"
    group: Group


@dataclass(frozen=True)
class Align(Message):
    """Freeze the processes right after the next complete checkpoint, and say so.

    It is to begin within `seconds`, and to end within `last_call` seconds; None: whenever that is.
    """

    key = "align"
    seconds: float | None = None
    last_call: float | None = None


@dataclass(frozen=True)
class StandStill(Message):
    """Processes of another pod stand right after a checkpoint: freeze these too, unless they write one."""

    key = "still"
    shape = INSIDE
    round: int
    marked: bool


@dataclass(frozen=True)
class AskSave(Message):
    """Have the processes wait after that step of their own, to be asked for a checkpoint; 0: say how far they are."""

    key = "askSave"
    shape = INSIDE
    round: int
    step: int = 0


@dataclass(frozen=True)
class Save(Message):
    """Ask the script for a checkpoint after that step, at which all were told to wait; 0: at once."""

    key = "saveNow"
    step: int


@dataclass(frozen=True)
class Resume(Message):
    """The change that a checkpoint was waited for does not take place."""

    key = "resume"


@dataclass(frozen=True)
class Stop(Message):
    """End the processes of that generation within `seconds`; with `dump` their stacks go to the log first."""

    key = "stop"
    generation: int
    seconds: float = 5.0
    dump: bool = False


@dataclass(frozen=True)
class Done(Message):
    """All processes of the job have ended well."""

    key = "done"


@dataclass(frozen=True)
class Fail(Message):
    """The job has failed: end with `exit_code`. `rank` and `pod` failed first, with `script_exit_code`."""

    key = "fail"
    shape = INSIDE
    exit_code: int = EXIT_DO_NOT_RETRY
    rank: int = -1
    message: str = "the job has failed"
    pod: str = ""
    script_exit_code: int = -1


@dataclass(frozen=True)
class Leave(Message):
    """The pod may end, `after` seconds from now; with `save` its first process writes a checkpoint before."""

    key = "leave"
    shape = BESIDE
    save: bool = False
    after: float = 0.0


@dataclass(frozen=True)
class Candidates(Message):
    """Start the processes that are missing, to be taken into a group that trains."""

    key = "candidates"


@dataclass(frozen=True)
class Host(Message):
    """Keep a store ready from now on, in which a group meets (125)."""

    key = "host"


@dataclass(frozen=True)
class Prepare(Message):
    """Form that group beside the one that trains; `broken`: that one can do no further step."""

    key = "prepare"
    shape = INSIDE
    group: Group
    at: Key
    broken: bool = False


@dataclass(frozen=True)
class AskPassed(Message):
    """How many boundaries have you passed?"""

    key = "ask"
    at: Key


@dataclass(frozen=True)
class Propose(Message):
    """All go over at that boundary: do you agree to wait there?"""

    key = "propose"
    boundary: int
    at: Key


@dataclass(frozen=True)
class Bind(Message):
    """It is agreed: go over to that group, or wait in none; with `save` write a checkpoint together, and end."""

    key = "bind"
    group: Group | None
    at: Key
    save: bool | None = None


@dataclass(frozen=True)
class Cancel(Message):
    """The change in place does not take place: go on."""

    key = "cancel"


@dataclass(frozen=True)
class Broken(Message):
    """That generation has lost a pod and can do no further step: keep the state in memory."""

    key = "broken"
    generation: int


@dataclass(frozen=True)
class Status(Message):
    """What the master's /status shows; told to the master's launcher only."""

    key = "status"
    status: dict[str, Any]


ALL: tuple[type[Message], ...] = (
    Status,
    Form,
    Align,
    StandStill,
    AskSave,
    Save,
    Resume,
    Stop,
    Done,
    Fail,
    Leave,
    Candidates,
    Host,
    Prepare,
    AskPassed,
    Propose,
    Cancel,
    Broken,
    Bind,
)
