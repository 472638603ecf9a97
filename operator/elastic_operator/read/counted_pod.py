"""A pod as the ledger counts it: an existing pod, or a pod that is being created."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from elastic_api.job import GROUP, KIND
from elastic_api.quantity import QuantityError, amount
from elastic_operator.cluster.meta import OwnerReference
from elastic_operator.cluster.pod import Pod
from elastic_operator.plan.facts.demand import Member
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.requirements import Load
from elastic_operator.read import convert


@dataclass(frozen=True, slots=True)
class CountedPod:
    """A pod as counted."""

    pod: Pod
    node: str | None
    """The node that it is bound or pinned to."""
    load: Load
    controller_uid: str | None
    """The uid of the job that the pod names as its controller."""
    own: OwnPod | None
    """The pod as a pod of that job; None if the claim is false."""
    waits: bool = False
    """Whether the pod is foreign, requests GPUs, and has no node yet."""
    unreadable: bool = False
    """Whether the pod could not be read."""
    orphan: bool = False
    """Whether the pod was ours, and its job is deleted."""
    nominated: bool = False
    """Whether the pod is foreign and requests no GPUs, and kube-scheduler keeps room on the node for it."""
    victims: tuple[str, ...] = ()
    """The pods (uids) that were or will be evicted for this foreign pod (203)."""

    @property
    def uses_node(self) -> bool:
        """Whether this is a foreign pod that uses a node.

        An orphan that is pinned but not bound counts on its node until it is deleted: the garbage collector deletes it
        some time after the job, and kube-scheduler may bind it before. A pod for which kube-scheduler has preempted
        others counts on its nominated node: otherwise the operator would create pods in that room, and kube-scheduler
        would preempt these, too.
        """
        if self.own is not None or convert.is_ended(self.pod):
            return False
        comes = (self.orphan or self.nominated) and self.pod.metadata.deletion_timestamp is None
        return bool(self.pod.spec.node_name) or comes

    @property
    def plain(self) -> bool:
        """Whether this pod belongs to no job, and uses a node or may use one later."""
        may_run = bool(self.pod.spec.node_name) or self.pod.metadata.deletion_timestamp is None
        return self.controller_uid is None and may_run and not convert.is_ended(self.pod)

    def counts_like(self, other: CountedPod) -> bool:
        """Whether the two states of a pod count the same in all sums."""
        return (
            (self.node, self.uses_node, self.controller_uid, self.own, self.victims)
            == (other.node, other.uses_node, other.controller_uid, other.own, other.victims)
            and self.plain is other.plain
            and self.load == other.load
            and self._parts_that_decide == other._parts_that_decide
        )

    @property
    def _parts_that_decide(self) -> tuple[object, ...] | None:
        """The parts of a foreign pod from which the operator decides about the pod while it waits for GPUs; None for
        any other pod.
        """
        meta = self.pod.metadata
        return (meta.labels, meta.annotations, meta.controller, self.pod.spec, self.pod.status) if self.waits else None


@dataclass(frozen=True, slots=True)
class Assumed:
    """A pod that is being created (48). Until the real uid is known, `member` has an invented one."""

    member: Member
    job_uid: str
    namespace: str
    name: str
    until: float


def controlling_job(pod: Pod) -> OwnerReference | None:
    """The job that the pod names as its controller."""
    controller = pod.metadata.controller
    if controller is None or controller.kind != KIND or controller.api_version.partition("/")[0] != GROUP:
        return None
    return controller


def quantities_of(pod: Pod) -> Counter[str]:
    """The readable quantities among the pod's requests."""
    asked = Counter({"pods": 1})
    for container in pod.spec.containers:
        for name, quantity in {**container.resources.limits, **container.resources.requests}.items():
            with suppress(QuantityError):
                asked[name] += amount(name, quantity)
    return asked


def assumed_uid(namespace: str, name: str) -> str:
    """The uid of a pod while it is being created."""
    return f"assumed/{namespace}/{name}"
