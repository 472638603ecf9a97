"""A pod as the coordinator knows it: three questions that have one answer each, and what its launcher says beside.

`where` is the pod: connected or not, and whether it leaves. `processes` is how far its processes are in a generation,
`readiness` whether they can be brought into the next one. Each answer is a frozen dataclass, and only the methods of
`Member` replace it (128):

    Here ──leaving──► Leaving        any ──line breaks──► Away        any ──goodbye──► Gone

    NoProcesses ──► Assigned ──► Running ──► Joined ──► Finished      (stopped, or left out: NoProcesses)
                        └────────────┴──────────┴─────► FellOut

    NotReady ──► Starting ──► Ready ──► Refused                       any ──► GivenUp ──► NotReady

Scripts that do not use the library are never Joined nor Ready: they train as Running.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Union

from elastic_worker.coordinator.model import Failure, Pod
from elastic_worker.protocol import reports

# -- where a pod is ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Here:
    """Connected."""

    connected: ClassVar[bool] = True
    leaving_until: ClassVar[float | None] = None


@dataclass(frozen=True)
class Leaving:
    """Connected, and told to go: its processes end by then."""

    leaving_until: float
    connected: ClassVar[bool] = True


@dataclass(frozen=True)
class Away:
    """Its connection broke. It is lost unless it is back by `until`."""

    until: float
    leaving_until: float | None = None
    connected: ClassVar[bool] = False


@dataclass(frozen=True)
class Gone:
    """It left of its own word."""

    connected: ClassVar[bool] = False
    leaving_until: ClassVar[float | None] = None


Where = Union[Here, Leaving, Away, Gone]

# -- how far its processes are in a generation -------------------------------------------------------------------------


@dataclass(frozen=True)
class NoProcesses:
    """None were started, or they wait in no group."""

    number: ClassVar[int] = 0


@dataclass(frozen=True)
class Assigned:
    """The pod was told to start them for that generation, or to have them go over to it."""

    number: int


@dataclass(frozen=True)
class Running:
    """They run as that generation, as the pod says."""

    number: int


@dataclass(frozen=True)
class Joined:
    """They use the library, and all of them are in its group."""

    number: int


@dataclass(frozen=True)
class Finished:
    """They have ended well."""

    number: int


@dataclass(frozen=True)
class FellOut:
    """They can do no further step in it: one has failed, or has lost its peers."""

    number: int


Processes = Union[NoProcesses, Assigned, Running, Joined, Finished, FellOut]

# -- whether they can be brought into the next one ---------------------------------------------------------------------


@dataclass(frozen=True)
class NotReady:
    """Nothing is under way."""


@dataclass(frozen=True)
class Starting:
    """The pod was told to start those that are missing."""


@dataclass(frozen=True)
class Ready:
    """All of them can, since then."""

    since: float


@dataclass(frozen=True)
class Refused:
    """Too often no group came about with this newcomer: it is left out until it connects anew, or all start again."""


@dataclass(frozen=True)
class GivenUp:
    """The pod does not end processes that it was told to end: nothing is expected of it until it has."""

    why: str


Readiness = Union[NotReady, Starting, Ready, Refused, GivenUp]

# ----------------------------------------------------------------------------------------------------------------------


@dataclass
class Member:
    """A pod that is, or was, connected.

    A pod that connects again is a new one, but for its `failure`. The other fields may have any value, whatever the
    first three are, as they depend on something else. `takes_parts`: its release can be told its part of a group;
    others are told the whole. `warm_at`: since when its warm parent can start processes at once. `has_state`: one of
    its processes has the state of the training; another one may be starting, or be gone. `kind`: how they change
    groups, as the script says; "" if it does not use the library. `store_port`: where it serves a store that no group
    has used; `hosts`: it was told to keep one ready, as the master's pod always does. `stuck`: the rank whose step
    takes far too long.
    """

    pod: Pod
    where: Where = Here()
    processes: Processes = NoProcesses()
    readiness: Readiness = NotReady()
    takes_parts: bool = False
    warm_at: float | None = None
    has_state: bool = False
    kind: str = ""
    failure: Failure | None = None
    idle_seconds: float = 0.0
    store_port: int = 0
    hosts: bool = False
    stuck: Mapping[str, Any] | None = None

    # -- what follows -------------------------------------------------------------------------------------------------

    @property
    def here(self) -> bool:
        """Whether it may take part in a new group: a pod that leaves, is cut off or given up may not."""
        return isinstance(self.where, Here) and not isinstance(self.readiness, GivenUp)

    @property
    def leaves(self) -> bool:
        """Whether it was told to go, or has said goodbye."""
        return isinstance(self.where, Gone) or self.where.leaving_until is not None

    @property
    def still_runs(self) -> bool:
        """Whether its processes are to be waited for."""
        return self.where.connected and self.processes.number > 0 and not isinstance(self.readiness, GivenUp)

    @property
    def is_ready(self) -> bool:
        """Whether all of its processes can be brought into a group."""
        return isinstance(self.readiness, Ready) and self.here

    def takes_part(self, number: int) -> bool:
        """Whether its processes are in that generation, or on their way to it."""
        return self.processes.number == number and not isinstance(self.processes, FellOut)

    def tells_steps_of(self, number: int) -> bool:
        """Whether the steps that it tells are of that generation, and not of the one before (104)."""
        return self.processes.number == number and not isinstance(self.processes, Assigned)

    # -- where it is --------------------------------------------------------------------------------------------------

    def leave(self, until: float) -> None:
        """It was told to go."""
        if self.where.connected:
            self.where = Leaving(until)

    def lose(self, until: float) -> None:
        """Its connection broke."""
        if not isinstance(self.where, Gone):
            self.where = Away(until, self.where.leaving_until)

    def go(self) -> None:
        """It says that it leaves."""
        self.where = Gone()

    # -- how far its processes are ------------------------------------------------------------------------------------

    def start(self, number: int) -> None:
        """It is told to start all of its processes for that generation, whatever runs there."""
        self.processes, self.readiness, self.has_state = Assigned(number), NotReady(), False

    def go_over(self, number: int) -> None:
        """It is told that its processes go over to that generation; 0: the others go on without them."""
        self.processes = Assigned(number) if number else NoProcesses()

    def runs(self, number: int) -> None:
        """It says what its processes run as. It says so again in each hello, whatever became of them meanwhile."""
        if number != self.processes.number or isinstance(self.processes, Assigned):
            self.processes = Running(number) if number else NoProcesses()

    def finish(self, number: int) -> None:
        """It says that its processes have ended well."""
        if number and number == self.processes.number:
            self.processes = Finished(number)

    def fall_out(self, number: int) -> None:
        """Its processes can do no further step in that generation."""
        if number and self.takes_part(number) and self.processes != Finished(number):
            self.processes = FellOut(number)

    def stop(self, unkillable: str) -> None:
        """It says that its processes have ended, but for one that is `unkillable`."""
        self.processes = NoProcesses()
        if isinstance(self.readiness, Starting):
            self.readiness = NotReady()
        self.unkillable(unkillable)

    # -- whether they are ready ---------------------------------------------------------------------------------------

    def get_ready(self) -> None:
        """It is told to start the processes that are missing."""
        self.readiness = Starting()

    def refuse(self) -> None:
        """No group came about with it, often enough."""
        self.readiness = Refused()

    def give_up(self, why: str) -> None:
        """Nothing is expected of it any more, though it is connected."""
        self.readiness = GivenUp(why)

    def unkillable(self, process: str) -> None:
        """It says which process SIGKILL does not end; "" for none."""
        if process:
            self.give_up(process)
        elif isinstance(self.readiness, GivenUp):
            self.readiness = NotReady()

    def ready(self, said: reports.Ready, now: float) -> bool:
        """It says whether all of its processes can be brought into a group, and which one they are in.

        Returns whether they have joined theirs just now. Processes that have all left it have lost it; so has a pod one
        of whose processes ends on the way from one group to the next.
        """
        number = self.processes.number
        joins = said.joined == number > 0 and isinstance(self.processes, (Assigned, Running))
        if joins:
            self.processes = Joined(number)
        elif said.joined != number and (isinstance(self.processes, Joined) or (self.has_state and not said.is_ready)):
            self.fall_out(number)
        # A pod that lacks one of its processes does not say the kind; the others have not changed theirs.
        self.has_state, self.kind = said.holds, said.kind or self.kind
        if said.is_ready and isinstance(self.readiness, (NotReady, Starting)):
            self.readiness = Ready(now)
        elif not said.is_ready and isinstance(self.readiness, Ready):
            self.readiness = NotReady()
        return joins
