"""What a pod asks of a node, and what is free on one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elastic_operator.plan.allocation.fit import collide
from elastic_operator.plan.facts.snapshot import HostPort, PodShape, Resources


@dataclass(frozen=True, slots=True, eq=False)
class PodRequirements:
    """A pod shape as the board reads it; equal shapes share one. `hosts` are the open nodes it may go to, by number.

    `scarce` is the one of its needs that nodes lack most often: GPUs, if it asks for any.
    """

    shape: PodShape
    needs: tuple[tuple[str, int], ...]
    scarce: tuple[str, int]
    ports: frozenset[HostPort]
    gpus: int
    hosts: tuple[int, ...]
    host_set: frozenset[int]


class FreeResources:
    """What is free on one node in one of the two tenses. Negative where others over-committed it."""

    __slots__ = ("free", "ports")

    def __init__(self, free: dict[str, int], ports: Iterable[HostPort]) -> None:
        self.free = free
        self.ports = list(ports)

    def fits(self, ask: PodRequirements) -> bool:
        """Whether one such pod has room."""
        free = self.free
        for name, need in ask.needs:
            if free.get(name, 0) < need:
                return False
        return not (ask.ports and self.ports and collide(ask.ports, self.ports))

    def hold(self, requests: Resources, ports: Iterable[HostPort]) -> None:
        """Count a load."""
        for name, amount in requests.items():
            self.free[name] = self.free.get(name, 0) - amount
        self.ports.extend(ports)

    def give(self, requests: Resources, ports: Iterable[HostPort]) -> None:
        """Count a load as gone."""
        for name, amount in requests.items():
            self.free[name] = self.free.get(name, 0) + amount
        for port in ports:
            self.ports.remove(port)

    def replace(
        self,
        before: Iterable[Resources],
        ports_before: Iterable[HostPort],
        after: Iterable[Resources],
        ports_after: Iterable[HostPort],
    ) -> None:
        """Count other loads instead of those before."""
        for load in before:
            self.give(load, ())
        for load in after:
            self.hold(load, ())
        if ports_before != ports_after:
            self.give({}, ports_before)
            self.hold({}, ports_after)


def total_of(loads: Iterable[Resources]) -> dict[str, int]:
    """The sum of the loads. Most are one and the same object, so these are counted and multiplied."""
    alike: dict[int, tuple[Resources, int]] = {}
    for load in loads:
        alike[id(load)] = (load, alike.get(id(load), (load, 0))[1] + 1)
    total: dict[str, int] = {}
    for load, times in alike.values():
        for name, amount in load.items():
            total[name] = total.get(name, 0) + times * amount
    return total


def less(allocatable: Resources, *used: Resources) -> dict[str, int]:
    """What these loads leave of it; negative where they are too much."""
    free = dict(allocatable)
    for load in used:
        for name, amount in load.items():
            free[name] = free.get(name, 0) - amount
    return free
