"""The last report of the master of an Elastic job on its group.

A user's pod writes it, so it is shown and decides little: which nodes with pods of its own job are not given up yet
(92), and when its own job has failed too often (135).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GroupChange:
    """One change of the group, in pods. The last two fields are None until they are known.

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
    """How the master's first training process has spent its time since its start: `seconds` by part. `share` (0 to 1)
    is the part spent on steps that counted.
    """

    share: float
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """The group as the master with that uid sees it; `read_at` is when it reported, on the API server's clock.

    `state` is Waiting, Forming, Running, Aligning, Stopping, Done or Failed, and `reason` a sentence on it. `members`
    are names of pods in the order of their ranks, empty if no pod trains or if they are too many to be listed.
    `given_up` are pods that run but cannot train any more, each with the reason (105). `changes` are the latest ones,
    newest first. `epoch`, `samples_seen`, `loss` and `goodput` come from scripts that use the library.
    `progress_percentage` (0 to 100), `estimated_remaining_seconds` and `metrics` (names and values) come from scripts
    that report as to a TrainJob of Kubeflow. `silent_since`: the master does not answer any more, and this is its last
    report.
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
    progress_percentage: int | None = None
    estimated_remaining_seconds: int | None = None
    metrics: tuple[tuple[str, str], ...] = ()
    changes: tuple[GroupChange, ...] = ()
    silent_since: float | None = None

    @property
    def group(self) -> tuple[object, ...]:
        """All of it except the progress of the training, which changes all the time."""
        names = self.members, self.world_size, self.given_up, self.unused_flags, self.changes
        return self.master_uid, self.generation, self.state, self.reason, *names, self.silent_since
