"""A node, with its use and its state.

Resources are integers: cpu in millicores, memory and storage in bytes, everything else (GPUs, pods) in units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Resources = Mapping[str, int]

HostPort = tuple[str, str, int]
"""hostIP ("" = all), protocol, port."""

_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})

CORDONED = "cordoned"

_NODE_STATES = {
    "node.kubernetes.io/unschedulable": CORDONED,
    "node.kubernetes.io/not-ready": "NotReady",
    "node.kubernetes.io/unreachable": "NotReady",
    "node.kubernetes.io/out-of-service": "out of service",
    "node.kubernetes.io/disk-pressure": "under DiskPressure",
    "node.kubernetes.io/memory-pressure": "under MemoryPressure",
    "node.kubernetes.io/pid-pressure": "under PIDPressure",
    "node.kubernetes.io/network-unavailable": "without a network",
    "node.cloudprovider.kubernetes.io/uninitialized": "not initialized yet",
    "node.cloudprovider.kubernetes.io/shutdown": "shut down",
}
"""The taints that Kubernetes sets and removes with a node's state, each with the state in words. No new pod is placed
on a node with such a taint, even if the pod tolerates the taint: a kubelet under pressure evicts pods.
"""


def host_port(host_ip: str, protocol: str, number: int) -> HostPort:
    """A port of the node, as a pod requests it."""
    return "" if host_ip == "0.0.0.0" else host_ip, protocol or "TCP", number


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    effect: str
    value: str = ""

    @property
    def keeps_away(self) -> bool:
        """Whether the taint keeps pods away that do not tolerate it."""
        return self.effect in _KEEPS_AWAY

    @property
    def node_state(self) -> str:
        """The state of the node that Kubernetes set the taint for, in words; "" if it was set by somebody else."""
        return _NODE_STATES.get(self.key, "")


@dataclass(frozen=True, slots=True)
class NodeUse:
    """The use of a node by several pods. `gpus_by_namespace` divides the GPUs in `requests` by owner: namespace ->
    extended resource -> GPUs.
    """

    requests: Resources = field(default_factory=dict)
    ports: frozenset[HostPort] = frozenset()
    gpus_by_namespace: Mapping[str, Resources] = field(default_factory=dict)

    def gpus_of(self, resource: str) -> Iterator[tuple[str, int]]:
        """The namespaces that use that extended resource, each with its GPUs."""
        return ((name, held[resource]) for name, held in self.gpus_by_namespace.items() if held.get(resource))


UNUSED = NodeUse()


@dataclass(frozen=True, slots=True)
class Node:
    """A node, and its use by other pods than the members of our jobs.

    `used` counts every bound pod that has not ended, of any kind and namespace, except the members in the input's jobs
    and except the pods in `leaving`. `leaving` counts our own pods that are being deleted: their resources and host
    ports are not free yet, but will be.
    """

    name: str
    allocatable: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    used: NodeUse = UNUSED
    leaving: NodeUse = UNUSED

    @property
    def why_closed(self) -> str:
        """What keeps all new pods off the node, in words; "" if nothing does.

        A taint for the node's state may outlive or precede that state by moments.
        """
        if self.unschedulable or not self.ready:
            return CORDONED if self.unschedulable else "NotReady"
        return next((taint.node_state for taint in self.taints if taint.keeps_away and taint.node_state), "")


class UnreadyNode(NamedTuple):
    """A node that is not Ready.

    `written` is the time in the node's status when it stopped being Ready; `since` is the time that the operator uses
    instead (29). `out_of_service`: whether the node has the taint of that name, so somebody has given it up.
    """

    written: float
    since: float
    out_of_service: bool = False


Unready = Mapping[str, UnreadyNode]
"""The nodes that are not Ready, by name."""
