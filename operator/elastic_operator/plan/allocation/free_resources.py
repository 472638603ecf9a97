"""The requirements of a pod, and the free room on a node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass

from elastic_operator.plan.allocation.fit import collide
from elastic_operator.plan.facts.node import HostPort, NodeUse, Resources
from elastic_operator.plan.facts.requirements import PodShape


@dataclass(frozen=True, slots=True, eq=False)
class PodRequirements:
    """A pod's shape in the form that the board compares with nodes. Equal shapes share one object.

    `nodes` are the open nodes that suit the pod, by number. `scarce` is the resource that nodes lack most often: GPUs,
    if the pod requests any.
    """

    shape: PodShape
    needs: tuple[tuple[str, int], ...]
    scarce: tuple[str, int]
    nodes: Collection[int]
    node_set: Set[int]

    @property
    def gpus(self) -> int:
        """The GPUs of one such pod."""
        return self.shape.gpus


class AllBut(Set[int]):
    """All of these nodes except a few, in the same order.

    It shares the list of nodes instead of copying it, because each job may avoid different nodes (198).
    """

    __slots__ = ("_node_set", "_nodes", "_without")

    def __init__(self, nodes: tuple[int, ...], node_set: frozenset[int], without: frozenset[int]) -> None:
        self._nodes, self._node_set, self._without = nodes, node_set, without & node_set

    def __contains__(self, node: object) -> bool:
        return node in self._node_set and node not in self._without

    def __iter__(self) -> Iterator[int]:
        return (node for node in self._nodes if node not in self._without)

    def __len__(self) -> int:
        return len(self._nodes) - len(self._without)

    @classmethod
    def _from_iterable(cls, nodes: Iterable[int]) -> frozenset[int]:  # type: ignore[override]
        return frozenset(nodes)


class FreeResources:
    """The free room on one node, now or soon. Negative if foreign pods over-committed it."""

    __slots__ = ("free", "ports")

    def __init__(self, free: dict[str, int], ports: Iterable[HostPort]) -> None:
        self.free = free
        self.ports = list(ports)

    def fits(self, requirements: PodRequirements) -> bool:
        free = self.free
        for name, need in requirements.needs:
            if free.get(name, 0) < need:
                return False
        ports = requirements.shape.host_ports
        return not (ports and self.ports and collide(ports, self.ports))

    def add(self, requests: Resources, ports: Iterable[HostPort]) -> None:
        """Count a load on the node."""
        for name, amount in requests.items():
            self.free[name] = self.free.get(name, 0) - amount
        self.ports.extend(ports)

    def remove(self, requests: Resources, ports: Iterable[HostPort]) -> None:
        for name, amount in requests.items():
            self.free[name] = self.free.get(name, 0) + amount
        for port in ports:
            self.ports.remove(port)


def total_of(loads: Iterable[Resources]) -> dict[str, int]:
    """The sum of the loads. Many of them are the same object, which is counted, and multiplied by its count."""
    alike: dict[int, tuple[Resources, int]] = {}
    for load in loads:
        alike[id(load)] = (load, alike.get(id(load), (load, 0))[1] + 1)
    total: dict[str, int] = {}
    for load, times in alike.values():
        for name, amount in load.items():
            total[name] = total.get(name, 0) + times * amount
    return total


def room_left(allocatable: Resources, *uses: NodeUse) -> FreeResources:
    """The room that these uses leave of `allocatable`."""
    room = FreeResources(dict(allocatable), ())
    for use in uses:
        room.add(use.requests, use.ports)
    return room
