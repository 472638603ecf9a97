"""Sums over the pods of one node, kept up pod by pod: resources, host ports, and whose the GPUs are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from elastic_operator.plan.facts.snapshot import HostPort, Resources


@dataclass(slots=True)
class PodSum:
    """What some pods take together. `gpu_resources` are the extended resources of which it is kept who holds them."""

    gpu_resources: Sequence[str]
    requests: Counter[str] = field(default_factory=Counter)
    ports: Counter[HostPort] = field(default_factory=Counter)
    gpus: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By namespace and resource."""
    pods: int = 0

    def add(self, namespace: str, requests: Resources, ports: Collection[HostPort]) -> None:
        """Count one more pod."""
        self.requests.update(requests)
        self.ports.update(ports)
        self.gpus.update(self._gpus(namespace, requests))
        self.pods += 1

    def remove(self, namespace: str, requests: Resources, ports: Collection[HostPort]) -> None:
        """Count a pod no more, which was added in the same words."""
        self.requests -= Counter(requests)
        self.ports -= Counter(ports)
        self.gpus -= Counter(self._gpus(namespace, requests))
        self.pods -= 1

    def copy(self) -> PodSum:
        """One that goes its own way."""
        return PodSum(self.gpu_resources, self.requests.copy(), self.ports.copy(), self.gpus.copy(), self.pods)

    def by_namespace(self) -> dict[str, Resources]:
        """Namespace -> extended resource -> GPUs."""
        held: dict[str, dict[str, int]] = {}
        for (namespace, resource), count in self.gpus.items():
            held.setdefault(namespace, {})[resource] = count
        return dict(held)

    def _gpus(self, namespace: str, requests: Resources) -> dict[tuple[str, str], int]:
        return {(namespace, name): requests[name] for name in self.gpu_resources if requests.get(name)}
