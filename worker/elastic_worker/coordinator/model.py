"""Immutable data of the coordinator: pods, memberships, generations and failures.

A generation is one group of training processes: its pods, in the order of their ranks. Times are monotonic seconds of
the coordinator's own clock. Members report durations instead of times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import accumulate
from typing import Any, cast

from elastic_worker.protocol.orders import GenerationRecord

UNKNOWN = "?"
"""Prefix of the uid of a pod of which only its place in a group is known (`part`)."""
NAMES_IN_JSON = {"membership_number": "wish"}
"""Names in JSON that differ from the fields': those that earlier releases write and read (103)."""


@dataclass(frozen=True)
class Pod:
    """A pod of the job, as its hello describes it. `processes` is how many training processes it runs."""

    uid: str
    name: str
    address: str
    processes: int = 1
    is_master: bool = False
    index: int = 0

    @staticmethod
    def from_message(message: Mapping[str, Any], *, address: str = "") -> Pod:
        """Decode JSON of any release; `address` is used if the message has none. Raises KeyError without a uid."""
        return Pod(**{"name": message["uid"], "address": address, **known_fields(Pod, message)})

    @property
    def is_known(self) -> bool:
        """Whether more than its place in a group is known of the pod."""
        return not self.uid.startswith(UNKNOWN)


@dataclass(frozen=True)
class Membership:
    """The operator's list: the uids of the pods that may train, and the allowed sizes in pods. `number` only grows.

    `has_successor`: another master may be created while this one is cut off, so the smaller part of a group waits.
    """

    number: int
    members: frozenset[str]
    fewest: int = 1
    most: int = 4096
    sizes: tuple[int, ...] = ()
    step: int = 1
    has_successor: bool = True

    def largest(self, available: int) -> int:
        """Return the largest allowed size for that many pods; 0 if they are too few."""
        if self.sizes:
            return max((size for size in self.sizes if self.fewest <= size <= available), default=0)
        if available < self.fewest:
            return 0
        most = min(available, self.most)
        return most - (most - self.fewest) % self.step


@dataclass(frozen=True)
class Generation:
    """A group: its pods in the order of their ranks, formed under a master's `epoch`.

    `membership_number` is that of the `Membership` for which it formed, 0 for none. `failures` (in a row, without
    progress) and `step` (optimizer steps done when it formed) are for a restarted coordinator, which learns them from
    the members' parts (`part`).
    """

    number: int
    epoch: int = 0
    membership_number: int = 0
    pods: tuple[Pod, ...] = ()
    reason: str = "Start"
    failures: int = 0
    step: int = 0
    store_port: int = 0

    @cached_property
    def uids(self) -> frozenset[str]:
        """Return the uids of the pods."""
        return frozenset(self.places)

    @cached_property
    def places(self) -> Mapping[str, tuple[int, int]]:
        """Return by uid the index of each pod in `pods`, and the lowest rank in that pod."""
        ranks = accumulate((pod.processes for pod in self.pods), initial=0)
        return {pod.uid: (place, rank) for place, (pod, rank) in enumerate(zip(self.pods, ranks))}

    @cached_property
    def world_size(self) -> int:
        """Return the number of training processes of all pods."""
        return sum(pod.processes for pod in self.pods)

    @cached_property
    def is_without_master(self) -> bool:
        """Whether the workers train alone, until the master's processes join them (125)."""
        return bool(self.pods) and not any(pod.is_master for pod in self.pods)

    @property
    def order(self) -> tuple[int, int]:
        """Return the key by which later generations are greater."""
        return self.epoch, self.number

    def to_message(self) -> GenerationRecord:
        """Encode the whole group as JSON."""
        return cast("GenerationRecord", to_fields(asdict(self)))

    @staticmethod
    def from_message(message: Mapping[str, Any]) -> Generation:
        """Decode JSON of any release. Raises AttributeError, KeyError or TypeError for anything else."""
        pods = tuple(Pod.from_message(pod) for pod in message["pods"])
        return Generation(**{**known_fields(Generation, message), "pods": pods})


def to_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by their names in JSON."""
    return {NAMES_IN_JSON.get(name, name): value for name, value in values.items()}


def known_fields(kind: type[Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a message that this release knows; those added by other releases are ignored (103)."""
    names = {each.name: NAMES_IN_JSON.get(each.name, each.name) for each in fields(kind)}
    return {name: message[key] for name, key in names.items() if key in message}


@dataclass(frozen=True)
class Failure:
    """A training process that failed, or a pod whose processes are gone (`rank` -1). `last_lines`: its last output.

    The output is in no `/status`, which anybody who reaches the pod can read (163).
    """

    generation: int
    rank: int
    exit_code: int
    message: str
    pod: str = ""
    at: float = 0.0
    is_consequence: bool = False
    is_stall: bool = False
    last_lines: str = ""
