"""The requirements that pods have of a node: room for their load, and more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from json import dumps
from typing import Any

from elastic_operator.plan.facts.node import HostPort, Resources
from elastic_operator.plan.facts.team import DEFAULT_FLAVOR
from elastic_worker.contract import ROLE_MASTER


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """A pod's use of its node. `gpus` is the number of GPUs in its `requests`."""

    requests: Resources
    gpus: int = 0
    host_ports: frozenset[HostPort] = frozenset()


@dataclass(frozen=True, slots=True)
class PodShape(Load):
    """kube-scheduler's requirements of a node for a pod of one template: room for the pod's load, and more.

    `affinity` is `nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms` as written (a pod fits
    if any term matches; empty = no demand). `pinnable` is False if the planner cannot know everything that the
    scheduler will require (inter-pod affinity, DoNotSchedule spread, unbound or zonal volumes, resource claims, another
    scheduler). The planner then decides the number of such pods, and the scheduler decides their nodes (10).
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[Mapping[str, Any], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    pinnable: bool = True
    unpinned_because: str = ""
    avoided_nodes: frozenset[str] = frozenset()
    """The nodes that its pods avoid (137). Not a part of `affinity`: shapes that differ only in these nodes share what
    the allocation knows about all other nodes.
    """

    def __hash__(self) -> int:
        """Equal for equal shapes, in whatever order their resources, labels and terms are."""
        affinity = dumps(self.affinity, sort_keys=True) if self.affinity else ""
        parts = frozenset(self.requests.items()), frozenset(self.node_selector.items()), affinity, self.tolerations
        return hash((*parts, self.host_ports, self.avoided_nodes))


@dataclass(frozen=True, slots=True)
class JobShape:
    """The requirements that a job's pods have of a node, and the flavor of their GPUs. `job_shape` makes it.

    `flavor` is the kind of GPU that the job uses, "" for a job without GPUs. If the kind is unclear, `flavor_problem`
    says why, in words, and the job gets no new pods. `lowest_priority` is the lowest priority of its pods, as
    kube-scheduler sees them.
    """

    master: PodShape
    worker: PodShape
    flavor: str = DEFAULT_FLAVOR
    flavor_problem: str = ""
    lowest_priority: int = 0

    @property
    def pinnable(self) -> bool:
        """Whether the planner knows all of kube-scheduler's requirements for the job's pods (10)."""
        return self.master.pinnable and self.worker.pinnable

    def of(self, role: str) -> PodShape:
        return self.master if role == ROLE_MASTER else self.worker
