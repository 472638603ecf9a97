"""What the master of an Elastic job last said of its group. A user's pod says it: it is shown, and decides nothing but
which nodes of its own job's pods are not given up yet (`still_training.py`), and when its own job has failed too often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GroupChange:
    """One change of the group, in pods. The last two are None while nobody knows.

    `at` is in seconds since the epoch, on the clock of the master's node.
    """

    generation: int
    at: float
    reason: str
    before: int
    after: int
    pause_seconds: float | None = None
    lost_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Goodput:
    """Where the time of the master's first training process went since it started: `seconds` by part, and the `share`
    (0 to 1) of them in which steps were done that counted.
    """

    share: float
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """The group as the master with that uid sees it; `read_at` is when it said so, on the API server's clock.

    `state` is Waiting, Forming, Running, Aligning, Stopping, Done or Failed, and `reason` a sentence on it. `members`
    are names of pods in the order of their ranks; none where nobody trains, or where they are too many to be listed.
    `given_up`: pods that cannot train any more though they run, each with the reason.
    `unused_flags`: those of the torchrun that its command has called, which say another group than the job's.
    `changes` are the latest, newest first. `epoch`, `samples_seen`, `loss` and `goodput` are told by scripts that use
    the library. `silent_since`: the master gives no answer any more, and this is the last one.
    """

    master_uid: str
    read_at: float
    generation: int
    state: str
    reason: str = ""
    members: tuple[str, ...] = ()
    world_size: int = 0
    given_up: tuple[tuple[str, str], ...] = ()
    unused_flags: tuple[str, ...] = ()
    step: int | None = None
    last_checkpoint_step: int | None = None
    checkpoint_error: str | None = None
    epoch: int | None = None
    samples_seen: int | None = None
    loss: float | None = None
    goodput: Goodput | None = None
    changes: tuple[GroupChange, ...] = ()
    silent_since: float | None = None

    @property
    def group(self) -> tuple[object, ...]:
        """All of it but the progress of the training, which changes all the time."""
        names = self.members, self.world_size, self.given_up, self.unused_flags, self.changes
        return self.master_uid, self.generation, self.state, self.reason, *names, self.silent_since
