"""The last report of the master of an Elastic job on its group.

A user's pod writes the report. So the operator shows it, and decides only two questions about that job by it: which
nodes with pods of the job are not given up yet (92), and whether the job has failed too often (135).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GroupChange:
    """One change of the group, in pods. The last two fields are None until they are known.

    `time` is in seconds since the epoch, on the clock of the master's node.
    """

    generation: int
    time: float
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
class GroupReport:
    """The group as the master with that uid sees it."""

    master_uid: str
    read_at: float
    """When the master reported, on the API server's clock."""
    generation: int
    state: str
    """Waiting, Forming, Running, Aligning, Stopping, Done or Failed."""
    reason: str = ""
    """A sentence on the state."""
    members: tuple[str, ...] = ()
    """The names of the pods in the order of their ranks; empty if no pod trains, or if they are too many to be listed.
    """
    world_size: int = 0
    given_up: tuple[tuple[str, str], ...] = ()
    """Pods that run but cannot train any more, each with the reason (105)."""
    unused_flags: tuple[str, ...] = ()
    step: int | None = None
    last_checkpoint_step: int | None = None
    checkpoint_error: str | None = None
    epoch: int | None = None
    """`epoch`, `samples_seen`, `loss` and `goodput` are None unless the script uses the library."""
    samples_seen: int | None = None
    loss: float | None = None
    goodput: Goodput | None = None
    progress_percentage: int | None = None
    """From 0 to 100. This field, the remaining seconds and the metrics are None or empty unless the script reports in
    the protocol of Kubeflow's TrainJob.
    """
    estimated_remaining_seconds: int | None = None
    metrics: tuple[tuple[str, str], ...] = ()
    """Names and values."""
    changes: tuple[GroupChange, ...] = ()
    """The latest changes of the group, newest first."""
    silent_since: float | None = None
    """When the master stopped answering; None while it answers. If it does not answer, this is its last report."""

    @property
    def group(self) -> tuple[object, ...]:
        """The report without the progress of the training, which changes all the time."""
        names = self.members, self.world_size, self.given_up, self.unused_flags, self.changes
        return self.master_uid, self.generation, self.state, self.reason, *names, self.silent_since
