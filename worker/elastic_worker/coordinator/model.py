"""What the coordinator knows: the operator's wish, the members, the generation that trains.

A generation is one group of training processes: which pods, in which order of ranks. Times are monotonic seconds of
the coordinator's own clock; what members say of times comes as durations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import accumulate
from typing import Any

UNKNOWN = "?"
"""What the uid of a pod begins with of which only its place in a group is known (see `part`)."""


@dataclass(frozen=True)
class Pod:
    """A pod of the job, as it introduces itself. `processes` is how many training processes it runs."""

    uid: str
    name: str
    address: str
    processes: int = 1
    is_master: bool = False
    index: int = 0

    @staticmethod
    def from_message(message: Mapping[str, Any], *, address: str = "") -> Pod:
        """From JSON of any release; `address` is where it is, if it does not say so. Raises KeyError without a uid."""
        return Pod(**{"name": message["uid"], "address": address, **known_fields(Pod, message)})

    @property
    def is_known(self) -> bool:
        """Whether its name and uid are its own."""
        return not self.uid.startswith(UNKNOWN)


@dataclass(frozen=True)
class Wish:
    """The pods that are to train, by uid, and the allowed sizes, in pods; `number` grows with each wish of a master."""

    number: int
    members: frozenset[str]
    fewest: int = 1
    most: int = 4096
    sizes: tuple[int, ...] = ()
    step: int = 1

    def largest(self, available: int) -> int:
        """The largest allowed size for that many pods; 0 if they are too few."""
        if self.sizes:
            return max((size for size in self.sizes if self.fewest <= size <= available), default=0)
        if available < self.fewest:
            return 0
        most = min(available, self.most)
        return most - (most - self.fewest) % self.step


@dataclass(frozen=True)
class Generation:
    """A group: its pods in the order of their ranks, formed under a master's `epoch` by its `wish`.

    A coordinator that starts anew learns from the members what was, each of which has its part (`part`): `failures` in
    a row without progress, `step` as the optimizer steps done when it formed. What is asked of it is worked out once.
    """

    number: int
    epoch: int = 0
    wish: int = 0
    pods: tuple[Pod, ...] = ()
    reason: str = "Start"
    failures: int = 0
    step: int = 0
    store_port: int = 0

    @cached_property
    def uids(self) -> frozenset[str]:
        """The pods, by uid."""
        return frozenset(self.places)

    @cached_property
    def places(self) -> Mapping[str, tuple[int, int]]:
        """Which of the pods each uid is, from 0 on, and the lowest rank in that pod."""
        ranks = accumulate((pod.processes for pod in self.pods), initial=0)
        return {pod.uid: (place, rank) for place, (pod, rank) in enumerate(zip(self.pods, ranks))}

    @cached_property
    def world_size(self) -> int:
        """Training processes of all pods."""
        return sum(pod.processes for pod in self.pods)

    @cached_property
    def is_without_master(self) -> bool:
        """Whether workers go on alone, until the master's processes join them (125)."""
        return bool(self.pods) and not any(pod.is_master for pod in self.pods)

    @property
    def order(self) -> tuple[int, int]:
        """What makes one generation later than another."""
        return self.epoch, self.number

    def to_message(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @staticmethod
    def from_message(message: Mapping[str, Any]) -> Generation:
        """From JSON of any release. Raises AttributeError, KeyError, TypeError for what is none."""
        pods = tuple(Pod.from_message(pod) for pod in message["pods"])
        return Generation(**{**known_fields(Generation, message), "pods": pods})


def known_fields(kind: type[Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """What this release knows of a message: fields that another one has added are passed over (103)."""
    return {each.name: message[each.name] for each in fields(kind) if each.name in message}


@dataclass(frozen=True)
class Failure:
    """A training process that ended badly, or a pod whose processes are gone (`rank` -1)."""

    generation: int
    rank: int
    exit_code: int
    message: str
    pod: str = ""
    at: float = 0.0
    is_consequence: bool = False
    is_stall: bool = False


@dataclass
class Member:
    """A pod that is, or was, connected.

    `since`: when it connected, or was lost. `process_generation`: the generation whose processes it has, 0 for none;
    `counts`: the one whose steps it tells, as that is what it last said it runs. `given_up`: why nothing is expected of
    it any more, though it is connected. `leaving_until`: it was told to go, and its processes end by then. `goodbye`:
    it left of its own word. `store_port`: where it serves a store that no group has used; `hosts`: it was told to keep
    one ready, as the master's pod always does.

    Of pods whose processes change their group without being started again: `ready_at`, since when all of them can be
    brought into one; `joined_generation`, the one that they are in; `lost_generation`, the one that they fell out of;
    `starting`, they were told to get ready; `refused`, that no group came about with this newcomer, often enough;
    `has_state`, whether one of them has the state of the training; `kind`, how they change groups; `stuck`, which
    rank's step takes far too long.

    `takes_parts`: it can be told its part of a group; others are told the whole.
    """

    pod: Pod
    since: float
    takes_parts: bool = False
    connected: bool = True
    warm_at: float | None = None
    leaving_until: float | None = None
    goodbye: bool = False
    given_up: str = ""
    process_generation: int = 0
    counts: int = 0
    finished: int = 0
    failure: Failure | None = None
    idle_seconds: float = 0.0
    store_port: int = 0
    hosts: bool = False
    ready_at: float | None = None
    joined_generation: int = 0
    starting: bool = False
    refused: bool = False
    lost_generation: int = 0
    has_state: bool = False
    kind: str = ""
    stuck: Mapping[str, Any] | None = None

    @property
    def here(self) -> bool:
        """Whether it may take part in a new group: a pod that leaves, is cut off or given up may not."""
        return self.connected and self.leaving_until is None and not self.given_up

    @property
    def still_runs(self) -> bool:
        """Whether its processes are to be waited for."""
        return self.connected and bool(self.process_generation) and not self.given_up


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
class Board:
    """Everything a decision is made from.

    `group` is the last generation that was formed or heard of. `aligned` says that all of it that can be saved is: a
    checkpoint was just completed, or none is to be waited for any more (`in_vain`). `still_until`: so long pods have to
    answer whether they write.
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
    failures: int = 0
    failure: Failure | None = None
    restart_at: float = 0.0
    progressed: bool = False
    step: int = 0
    attempt: Regroup | None = None
    in_place: int = 0
    """The last generation that came about in place."""
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

    def end_change(self) -> None:
        """No change in place is under way, or was tried, and nobody is parked."""
        self.attempt, self.attempts, self.parked = None, 0, ""
        self.tried, self.failed_attempts = (), 0

    def member(self, uid: str) -> Member | None:
        """That pod, if it was ever connected here."""
        return self.members.get(uid)
