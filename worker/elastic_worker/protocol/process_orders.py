"""Messages from a launcher to its training processes that use the library.

It forwards the coordinator's orders to all processes (`FORWARDED`), and sends each process its own place in a group.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastic_worker.protocol import orders
from elastic_worker.protocol.codec import INSIDE, Message
from elastic_worker.protocol.orders import AttemptKey


@dataclass(frozen=True)
class GroupPlace:
    """The place of a process in one group. `rank` is -1 if it is not in the group.

    `pods` is how many pods make the group, and `pod` the index of this process's own.
    """

    generation: int
    rank: int
    world: int
    host: str
    port: int
    epoch: int = 0
    pods: int = 1
    pod: int = 0


@dataclass(frozen=True)
class Prepare(Message):
    """Form the group with that place beside the one that trains; `broken`: the latter can do no further step."""

    key = "prepare"
    shape = INSIDE
    place: GroupPlace
    at: AttemptKey
    broken: bool = False


@dataclass(frozen=True)
class Bind(Message):
    """All have agreed: switch to that place, or wait in no group.

    With `save` the ranks write a checkpoint together instead, and wait to be stopped.
    """

    key = "bind"
    place: GroupPlace | None
    at: AttemptKey
    save: bool | None = None


@dataclass(frozen=True)
class SaveAlone(Message):
    """Write a checkpoint at the next boundary, alone: the pod is about to leave, and no other pod has the state."""

    key = "save"


@dataclass(frozen=True)
class Leave(Message):
    """Exit at the next boundary: the pod leaves."""

    key = "leave"


@dataclass(frozen=True)
class CoordinatorAway(Message):
    """Whether the coordinator is away, so that lost pods cannot be named; else the `epoch` of its master."""

    key = "away"
    is_away: bool
    epoch: int | None = None


@dataclass(frozen=True)
class AskPosition(Message):
    """Report your latest boundary, and how long your present step has taken."""

    key = "where"


FORWARDED: tuple[type[Message], ...] = (orders.AskBoundary, orders.Propose, orders.Cancel, orders.Broken)
ALL: tuple[type[Message], ...] = (Prepare, *FORWARDED, SaveAlone, Bind, CoordinatorAway, Leave, AskPosition)
"""A process handles a line in this order: the `save` of Bind has the key of SaveAlone, whose request Bind withdraws."""
