"""Pods by a common key, and sums over these pods: resources, host ports, and the owners of GPUs. Each change of a pod
updates them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, field

from elastic_operator.memory import EMPTY_SET
from elastic_operator.plan.facts.gpus import gpus_by_resource
from elastic_operator.plan.facts.node import HostPort, NodeUse, Resources
from elastic_operator.plan.facts.requirements import Load


@dataclass(slots=True)
class PodSum:
    """The total use of some pods. For the extended resources in `gpu_resources` it also has the owners."""

    gpu_resources: Sequence[str]
    requests: Counter[str] = field(default_factory=Counter)
    ports: Counter[HostPort] = field(default_factory=Counter)
    gpus: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The sums by namespace and resource."""
    pods: int = 0

    def add(self, namespace: str, load: Load) -> None:
        self.requests.update(load.requests)
        self.ports.update(load.host_ports)
        self.gpus.update(self._gpus(namespace, load.requests))
        self.pods += 1

    def remove(self, namespace: str, load: Load) -> None:
        """Remove a pod that was added with the same load."""
        self.requests -= Counter(load.requests)
        self.ports -= Counter(load.host_ports)
        self.gpus -= Counter(self._gpus(namespace, load.requests))
        self.pods -= 1

    def copy(self) -> PodSum:
        return PodSum(self.gpu_resources, self.requests.copy(), self.ports.copy(), self.gpus.copy(), self.pods)

    def as_use(self) -> NodeUse:
        return NodeUse(dict(self.requests), frozenset(self.ports), self.by_namespace())

    def by_namespace(self) -> dict[str, Resources]:
        """Namespace -> extended resource -> GPUs."""
        held: dict[str, dict[str, int]] = {}
        for (namespace, resource), count in self.gpus.items():
            held.setdefault(namespace, {})[resource] = count
        return dict(held)

    def _gpus(self, namespace: str, requests: Resources) -> dict[tuple[str, str], int]:
        return {(namespace, name): n for name, n in gpus_by_resource(requests, self.gpu_resources).items()}


class PodIndex:
    """Pod uids by a key."""

    def __init__(self) -> None:
        self._members: dict[Hashable, set[str]] = {}

    def get(self, key: Hashable) -> Set[str]:
        return self._members.get(key, EMPTY_SET)

    def add(self, key: Hashable, uid: str) -> None:
        self._members.setdefault(key, set()).add(uid)

    def remove(self, key: Hashable, uid: str) -> None:
        members = self._members[key]
        members.remove(uid)
        if not members:
            del self._members[key]
