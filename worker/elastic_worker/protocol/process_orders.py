"""What a launcher tells its training processes that use the library.

It hands on what the coordinator says to all alike (`HANDED_ON`), and tells each its own place in a group.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastic_worker.protocol import orders
from elastic_worker.protocol.codec import INSIDE, Message
from elastic_worker.protocol.orders import Key


@dataclass(frozen=True)
class GroupPlace:
    """Where a process stands in one group. `rank` -1: not in it. `pods` and `pod`: how many there are, and which of
    them this is.
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
    """Form the group with that place beside the one that trains; `broken`: that one can do no further step."""

    key = "prepare"
    shape = INSIDE
    place: GroupPlace
    at: Key
    broken: bool = False


@dataclass(frozen=True)
class Bind(Message):
    """It is agreed: go over to that place, or wait in no group; with `save` write a checkpoint together, and end."""

    key = "bind"
    place: GroupPlace | None
    at: Key
    save: bool | None = None


@dataclass(frozen=True)
class Save(Message):
    """Write a checkpoint at the next boundary, alone: the pod is about to leave, and nobody else has the state."""

    key = "save"


@dataclass(frozen=True)
class Leave(Message):
    """End at the next boundary: the pod leaves."""

    key = "leave"


@dataclass(frozen=True)
class Away(Message):
    """Whether there is no coordinator, so that nobody can say which pods are lost; else the `epoch` of its master."""

    key = "away"
    is_away: bool
    epoch: int | None = None


@dataclass(frozen=True)
class AskWhere(Message):
    """How far are you, and how long does your step take already?"""

    key = "where"


HANDED_ON: tuple[type[Message], ...] = (orders.AskPassed, orders.Propose, orders.Cancel, orders.Broken)
ALL: tuple[type[Message], ...] = (Prepare, *HANDED_ON, Save, Bind, Away, Leave, AskWhere)
"""Save stands before Bind, as it is said by the same key as Bind's `save`, and Bind ends what it asks for."""
