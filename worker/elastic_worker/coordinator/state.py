"""What the coordinator knows, and what it is about: the members, the generation that trains, the change under way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from elastic_worker.coordinator.member import Away, Member
from elastic_worker.coordinator.model import Failure, Generation, Pod, Wish


class Phase:
    """Where the group stands."""

    WAITING = "Waiting"
    RUNNING = "Running"
    ALIGNING = "Aligning"
    STOPPING = "Stopping"
    DONE = "Done"
    FAILED = "Failed"


class Stage:
    """How far a change in place has come: the next group is formed, its moment is asked for, then proposed."""

    FORMING = "forming"
    ASKING = "asking"
    PROPOSED = "proposed"
    SAVING = "saving"


@dataclass
class Regroup:
    """A change in place under way: `group` is to take over from the one that trains.

    `broken`: that one can do no further step, so nothing need be agreed. `number` tells attempts at the same generation
    apart. `formed`, `passed` (boundaries) and `agreed` hold the pods' answers, by uid; `tick` is the boundary that was
    proposed, `margin` how far ahead of the group. With a group of no pods all wait, for the reason in `sentence`;
    if `starts_again`, they write a checkpoint then (`saved`), and are started as another group.
    """

    group: Generation
    number: int
    broken: bool
    since: float
    stage: str = Stage.FORMING
    formed: set[str] = field(default_factory=set)
    problem: str = ""
    passed: dict[str, int] = field(default_factory=dict)
    agreed: dict[str, bool] = field(default_factory=dict)
    tick: int = 0
    margin: int = 2
    sentence: str = ""
    saved: dict[str, bool] = field(default_factory=dict)
    starts_again: bool = False

    @property
    def key(self) -> list[int]:
        """What messages about it carry."""
        return [self.group.number, self.number]


@dataclass(frozen=True)
class Rules:
    """What the job's spec says. `align_seconds` None: planned changes wait for no checkpoint."""

    align_seconds: float | None = None
    grace_seconds: float = 30.0
    max_failures: int = 3
    final_exit_codes: frozenset[int] = frozenset()
    stall_seconds: float = 1800.0


@dataclass
class CoordinatorState:
    """Everything a decision is made from.

    `group` is the last generation that was formed or heard of. `aligned` says that all of it that can be saved is: a
    checkpoint was just completed, or none is to be waited for any more (`in_vain`). `still_until`: so long pods have to
    answer whether they write. `asked_at`: when the script was asked for that checkpoint, if it was.
    """

    me: str
    epoch: int
    rules: Rules
    started: float
    wish: Wish | None = None
    members: dict[str, Member] = field(default_factory=dict)
    group: Generation | None = None
    phase: str = Phase.WAITING
    phase_since: float = 0.0
    why: str = "Start"
    """The reason of the change under way: Start, Join, Leave, Loss, Failure, MasterLost."""
    planned_at: float = 0.0
    aligned: bool = False
    in_vain: bool = False
    still_until: float | None = None
    asked_at: float | None = None
    failures: int = 0
    failure: Failure | None = None
    restart_at: float = 0.0
    progressed: bool = False
    step: int = 0
    attempt: Regroup | None = None
    attempts: int = 0
    """In place, since the last group that came about."""
    tried: tuple[Pod, ...] = ()
    failed_attempts: int = 0
    """How often in a row a group of the pods that were `tried` last did not come about, though nobody came or went."""
    parked: str = ""
    """Why a group that changes in place does no step now, its state kept in memory; "" while it trains."""
    gives_way_until: float = 0.0
    """Until when no group is formed, since an earlier master may train."""
    newest_epoch: int = 0
    """The latest master's that is seen from here (`succession`)."""

    @property
    def is_past(self) -> bool:
        """Whether a later master has taken over."""
        return self.newest_epoch > self.epoch

    def here(self) -> set[str]:
        """The pods of the group that are connected, by uid."""
        assert self.group is not None
        return {member.pod.uid for member in self.members_of(self.group.pods) if member.where.connected}

    def end_change(self) -> None:
        """No change in place is under way, or was tried, and nobody is parked."""
        self.attempt, self.attempts, self.parked = None, 0, ""
        self.tried, self.failed_attempts = (), 0

    def members_of(self, pods: Iterable[Pod]) -> list[Member]:
        """As they were last seen; one that was never connected here is away."""
        return [self.members.get(pod.uid) or Member(pod, Away(until=self.started)) for pod in pods]
