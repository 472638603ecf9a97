"""The state of the coordinator: the members, the generation that trains, and the change under way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from elastic_worker.coordinator.member import Disconnected, Member
from elastic_worker.coordinator.model import Failure, Generation, Membership, Pod


class Phase:
    """The phases of a job, as in /status."""

    WAITING = "Waiting"
    RUNNING = "Running"
    ALIGNING = "Aligning"
    STOPPING = "Stopping"
    DONE = "Done"
    FAILED = "Failed"


class Stage:
    """The stages of a change in place.

    The next group is formed, the boundaries are asked for, and one is proposed for the switch; or, for a restart, all
    write a checkpoint.
    """

    FORMING = "forming"
    ASKING = "asking"
    PROPOSED = "proposed"
    SAVING = "saving"


@dataclass
class RegroupAttempt:
    """An attempt at a change in place: `group` is to take over from the group that trains.

    `number` distinguishes attempts at the same generation. `broken`: the group that trains can do no further step, so
    there is nothing to agree on. `formed`, `boundaries` (the latest one passed), `agreed` and `saved` hold the pods'
    answers by uid. `boundary` is the proposed one, `margin` its distance from the latest that any pod has passed.

    If `group` has no pods, all processes wait, for the reason in `sentence`. If it also `restarts`, they write a
    checkpoint there, and are restarted as another group.
    """

    group: Generation
    number: int
    broken: bool
    since: float
    stage: str = Stage.FORMING
    formed: set[str] = field(default_factory=set)
    problem: str = ""
    boundaries: dict[str, int] = field(default_factory=dict)
    agreed: dict[str, bool] = field(default_factory=dict)
    boundary: int = 0
    margin: int = 2
    sentence: str = ""
    saved: dict[str, bool] = field(default_factory=dict)
    restarts: bool = False

    @property
    def key(self) -> list[int]:
        """What messages about it carry as `at` (`protocol.orders.AttemptKey`)."""
        return [self.group.number, self.number]


@dataclass(frozen=True)
class Rules:
    """Limits from the job's spec. `align_seconds` is None if planned changes wait for no checkpoint."""

    align_seconds: float | None = None
    grace_seconds: float = 30.0
    max_failures: int = 3
    final_exit_codes: frozenset[int] = frozenset()
    stall_seconds: float = 1800.0


@dataclass
class CoordinatorState:
    """The input of a decision.

    `own_uid` is the master's pod, in which this coordinator runs. `group` is the last generation that was formed or
    reported. `aligned`: its processes can be stopped, as a checkpoint was just completed or is not awaited any more
    (`no_checkpoint_came`). `still_deadline`: until when the pods may answer StandStill. `asked_at`: when the script was
    asked for a checkpoint, if it was.
    """

    own_uid: str
    epoch: int
    rules: Rules
    started: float
    membership: Membership | None = None
    members: dict[str, Member] = field(default_factory=dict)
    group: Generation | None = None
    phase: str = Phase.WAITING
    phase_since: float = 0.0
    change_reason: str = "Start"
    """The reason of the change under way: Start, Join, Leave, Loss, Failure, MasterLost."""
    planned_at: float = 0.0
    aligned: bool = False
    no_checkpoint_came: bool = False
    still_deadline: float | None = None
    asked_at: float | None = None
    failures: int = 0
    failure: Failure | None = None
    restart_at: float = 0.0
    progressed: bool = False
    step: int = 0
    attempt: RegroupAttempt | None = None
    attempts: int = 0
    """How many attempts at a change in place were made since the last group was formed."""
    tried: tuple[Pod, ...] = ()
    failed_attempts: int = 0
    """How many attempts at a group of the pods that were `tried` last have failed in a row."""
    parked: str = ""
    """Why a group that changes in place waits with its state in memory; "" while it trains."""
    gives_way_until: float = 0.0
    """Until when no group is formed, as an earlier master may still train."""
    newest_epoch: int = 0
    """The epoch of the latest master, as `succession` reads it."""

    @property
    def is_superseded(self) -> bool:
        """Whether a later master has taken over."""
        return self.newest_epoch > self.epoch

    def connected_in_group(self) -> set[str]:
        """Return the uids of the group's connected pods."""
        assert self.group is not None
        return {member.pod.uid for member in self.members_of(self.group.pods) if member.is_connected}

    def end_change(self) -> None:
        """Forget the attempt at a change in place and its failures; no group is parked any more."""
        self.attempt, self.attempts, self.parked = None, 0, ""
        self.tried, self.failed_attempts = (), 0

    def members_of(self, pods: Iterable[Pod]) -> list[Member]:
        """Return the pods' members; a pod that never connected to this coordinator counts as disconnected."""
        return [self.members.get(pod.uid) or Member(pod, Disconnected(until=self.started)) for pod in pods]
