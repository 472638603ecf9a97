"""The coordinator's record of a pod: its three states, and further reports of its launcher.

`presence` says whether the pod is connected, and whether it leaves. `processes` says how far its processes are in a
generation. `readiness` says whether they can be brought into the next one. Each of the three is a frozen dataclass,
and only the methods of `Member` replace it (128):

    Connected ──leaving──► Leaving   any ──line breaks──► Disconnected   any ──goodbye──► Gone

    NoProcesses ──► Assigned ──► Running ──► Joined ──► Finished      (stopped, or left out: NoProcesses)
                        └────────────┴──────────┴─────► FellOut

    NotReady ──► Starting ──► Ready ──► Refused                       any ──► GivenUp ──► NotReady

Scripts that do not use the library are never Joined nor Ready: they train as Running.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Union

from elastic_worker.coordinator.model import Failure, Pod
from elastic_worker.protocol import reports

# -- presence ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Connected:
    """Its launcher has a connection to the coordinator."""

    is_connected: ClassVar[bool] = True
    leaving_until: ClassVar[float | None] = None


@dataclass(frozen=True)
class Leaving:
    """The launcher is connected, and the pod is being terminated: its processes end by `leaving_until`."""

    leaving_until: float
    is_connected: ClassVar[bool] = True


@dataclass(frozen=True)
class Disconnected:
    """Its connection broke. The pod is lost unless it is back by `until`."""

    until: float
    leaving_until: float | None = None
    is_connected: ClassVar[bool] = False


@dataclass(frozen=True)
class Gone:
    """Its launcher said goodbye, and the pod has left."""

    is_connected: ClassVar[bool] = False
    leaving_until: ClassVar[float | None] = None


Presence = Union[Connected, Leaving, Disconnected, Gone]

# -- its processes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoProcesses:
    """The pod has no processes, or they wait in no group."""

    number: ClassVar[int] = 0


@dataclass(frozen=True)
class Assigned:
    """The pod was ordered to start its processes for that generation, or to switch them to it."""

    number: int


@dataclass(frozen=True)
class Running:
    """The pod reports that its processes run as that generation."""

    number: int


@dataclass(frozen=True)
class Joined:
    """The processes use the library, and all of them are in the generation's group."""

    number: int


@dataclass(frozen=True)
class Finished:
    """The processes have exited with code 0."""

    number: int


@dataclass(frozen=True)
class FellOut:
    """The processes can do no further step in the generation: one has failed, or has lost its peers."""

    number: int


Processes = Union[NoProcesses, Assigned, Running, Joined, Finished, FellOut]

# -- readiness for the next group --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NotReady:
    """The processes are not ready, and the pod was not ordered to start any."""


@dataclass(frozen=True)
class Starting:
    """The pod was ordered to start the missing processes."""


@dataclass(frozen=True)
class Ready:
    """All processes can be brought into a group, since that time."""

    since: float


@dataclass(frozen=True)
class Refused:
    """Too many attempts with this newcomer failed: it is left out until it reconnects, or until all start again."""


@dataclass(frozen=True)
class GivenUp:
    """The pod does not end processes that it was ordered to end: the coordinator ignores it until they have ended."""

    why: str


Readiness = Union[NotReady, Starting, Ready, Refused, GivenUp]

# ----------------------------------------------------------------------------------------------------------------------


@dataclass
class Member:
    """A pod that is, or was, connected.

    A pod that reconnects is a new member, which only inherits the `failure`. The fields after the first four depend on
    nothing else here, and may have any value:

    understands_parts   its release can be sent its part of a group; others are sent the whole
    warm_at             since when its warm parent can start processes at once
    has_state           one of its processes has the state of the training; another one may be starting, or have ended
    change_mode         how its processes change groups (`contract.IN_PLACE`, `RESTART`); "" without the library
    store_port          where it serves a store that no group has used
    hosts               it was ordered to keep a store ready, as the master's pod always does
    stuck               the rank whose step takes far too long
    """

    pod: Pod
    presence: Presence = Connected()
    processes: Processes = NoProcesses()
    readiness: Readiness = NotReady()
    understands_parts: bool = False
    warm_at: float | None = None
    has_state: bool = False
    change_mode: str = ""
    failure: Failure | None = None
    idle_seconds: float = 0.0
    store_port: int = 0
    hosts: bool = False
    stuck: reports.StuckRank | None = None

    # -- derived states ------------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Whether messages reach it."""
        return self.presence.is_connected

    @property
    def is_available(self) -> bool:
        """Whether it may take part in a new group: it is not leaving, disconnected or given up."""
        return isinstance(self.presence, Connected) and not isinstance(self.readiness, GivenUp)

    @property
    def is_leaving(self) -> bool:
        """Whether it is being terminated, or has said goodbye."""
        return isinstance(self.presence, Gone) or self.presence.leaving_until is not None

    @property
    def still_runs(self) -> bool:
        """Whether the coordinator waits for the end of its processes."""
        return self.is_connected and self.processes.number > 0 and not isinstance(self.readiness, GivenUp)

    @property
    def is_ready(self) -> bool:
        """Whether all of its processes can be brought into a group."""
        return isinstance(self.readiness, Ready) and self.is_available

    def belongs_to(self, number: int) -> bool:
        """Whether its processes are in that generation, or on their way to it."""
        return self.processes.number == number and not isinstance(self.processes, FellOut)

    def reports_steps_of(self, number: int) -> bool:
        """Whether its reported steps are of that generation, and not of the one before (104)."""
        return self.processes.number == number and not isinstance(self.processes, Assigned)

    # -- changes of its presence --------------------------------------------------------------------------------------

    def start_leaving(self, until: float) -> None:
        """The pod is being terminated: its processes end by `until`."""
        if self.is_connected:
            self.presence = Leaving(until)

    def disconnect(self, until: float) -> None:
        """The connection broke; the pod may reconnect until then."""
        if not isinstance(self.presence, Gone):
            self.presence = Disconnected(until, self.presence.leaving_until)

    def mark_gone(self) -> None:
        """Note that the pod has said goodbye: it has left for good."""
        self.presence = Gone()

    # -- changes of its processes -------------------------------------------------------------------------------------

    def assign(self, number: int) -> None:
        """The pod is ordered to start all processes for that generation, whatever runs there."""
        self.processes, self.readiness, self.has_state = Assigned(number), NotReady(), False

    def switch_to(self, number: int) -> None:
        """The processes are ordered to switch to that generation; 0: the others continue without them."""
        self.processes = Assigned(number) if number else NoProcesses()

    def mark_running(self, number: int) -> None:
        """The pod reports the generation of its processes. Each hello repeats this, whatever their state."""
        if number != self.processes.number or isinstance(self.processes, Assigned):
            self.processes = Running(number) if number else NoProcesses()

    def mark_finished(self, number: int) -> None:
        """The pod reports that its processes of that generation have exited with code 0."""
        if number and number == self.processes.number:
            self.processes = Finished(number)

    def fall_out(self, number: int) -> None:
        """Its processes can do no further step in that generation."""
        if number and self.belongs_to(number) and self.processes != Finished(number):
            self.processes = FellOut(number)

    def mark_stopped(self, unkillable: str) -> None:
        """The pod reports that its processes have ended, except one that is `unkillable`."""
        self.processes = NoProcesses()
        if isinstance(self.readiness, Starting):
            self.readiness = NotReady()
        self.mark_unkillable(unkillable)

    # -- changes of its readiness -------------------------------------------------------------------------------------

    def start_missing(self) -> None:
        """The pod is ordered to start the missing processes."""
        self.readiness = Starting()

    def refuse(self) -> None:
        """Too many attempts with this pod failed."""
        self.readiness = Refused()

    def give_up(self, why: str) -> None:
        """The coordinator no longer waits for the pod, although it is connected."""
        self.readiness = GivenUp(why)

    def mark_unkillable(self, process: str) -> None:
        """The pod reports which process SIGKILL does not end; "" for none."""
        if process:
            self.give_up(process)
        elif isinstance(self.readiness, GivenUp):
            self.readiness = NotReady()

    def mark_ready(self, report: reports.Ready, now: float) -> bool:
        """The pod reports whether all of its processes can be brought into a group, and which one they are in.

        Returns whether they have just joined theirs. A pod has fallen out of its group if all its processes have
        left the group, or if it loses a process between one group and the next.
        """
        number = self.processes.number
        was_joined = isinstance(self.processes, Joined)
        joins = report.joined == number > 0 and isinstance(self.processes, (Assigned, Running))
        if joins:
            self.processes = Joined(number)
        elif report.joined != number and (was_joined or (self.has_state and not report.is_ready)):
            self.fall_out(number)
        # A pod that lacks one of its processes does not report the mode; the others have not changed theirs.
        self.has_state, self.change_mode = report.holds, report.change_mode or self.change_mode
        if report.is_ready and isinstance(self.readiness, (NotReady, Starting)):
            self.readiness = Ready(now)
        elif not report.is_ready and isinstance(self.readiness, Ready):
            self.readiness = NotReady()
        return joins
