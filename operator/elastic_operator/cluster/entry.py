"""One pod as the ledger accounts for it."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_operator.api.job import GROUP, KIND
from elastic_operator.cluster import convert
from elastic_operator.cluster.meta import OwnerReference
from elastic_operator.cluster.pod import Pod
from elastic_operator.plan.job import OwnPod
from elastic_operator.plan.model import HostPort, Resources


@dataclass(frozen=True, slots=True)
class Entry:
    """A pod as accounted for.

    `node` is where it is bound or pinned. `claims` is the uid of the job it says it belongs to, `own` what it is to
    that job if that is true. `waits`: it is foreign, asks for GPUs, and has no node yet.
    """

    pod: Pod
    node: str | None
    requests: Resources
    host_ports: frozenset[HostPort]
    claims: str | None
    own: OwnPod | None
    waits: bool = False

    @property
    def holds(self) -> bool:
        """Whether it is a foreign pod that uses a node."""
        return self.own is None and bool(self.pod.spec.node_name) and not convert.ended(self.pod)

    def counts_like(self, other: Entry) -> bool:
        """Whether it makes no difference to anybody which of the two states of a pod is known."""
        return (
            (self.node, self.holds, self.claims, self.own) == (other.node, other.holds, other.claims, other.own)
            and self.requests == other.requests
            and self.host_ports == other.host_ports
            and self._waits_like(other)
        )

    def _waits_like(self, other: Entry) -> bool:
        if not self.waits or not other.waits:
            return self.waits is other.waits
        one, two = self.pod, other.pod
        return (one.metadata.labels, one.metadata.annotations, one.spec, one.status) == (
            two.metadata.labels,
            two.metadata.annotations,
            two.spec,
            two.status,
        )


def controlling_job(pod: Pod) -> OwnerReference | None:
    """The job that the pod says controls it."""
    controller = pod.metadata.controller
    if controller is None or controller.kind != KIND or controller.api_version.partition("/")[0] != GROUP:
        return None
    return controller


def assumed_uid(namespace: str, name: str) -> str:
    """The uid that a pod goes by while it is being created."""
    return f"assumed/{namespace}/{name}"
