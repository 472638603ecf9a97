"""Pods as frozen structs that hold only what this operator reads; meaning is drawn from them in `convert.py`."""

from __future__ import annotations

import msgspec

from elastic_operator.cluster.meta import Condition, Meta, Struct
from elastic_worker import contract


class PodLabels(Struct, frozen=True, rename=None):
    """The only label of pods that is read; names are taken from the object's name, which nobody can edit."""

    incarnation: str = msgspec.field(name=contract.LABEL_INCARNATION, default="")


class PodAnnotations(Struct, frozen=True, rename=None):
    """The annotations of pods that are read."""

    nnodes: str = msgspec.field(name=contract.ANNOTATION_NNODES, default="")
    template: str = msgspec.field(name=contract.ANNOTATION_TEMPLATE, default="")


class PodMeta(Meta, frozen=True):
    """metadata of a pod."""

    labels: PodLabels = PodLabels()
    annotations: PodAnnotations = PodAnnotations()
    deletion_grace_period_seconds: int | None = None
    finalizers: tuple[str, ...] = ()


class Resources(Struct, frozen=True):
    """resources of a container or a pod: quantities as written."""

    requests: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    limits: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class Port(Struct, frozen=True):
    """A container's port."""

    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class Container(Struct, frozen=True):
    """A container or init container."""

    name: str
    resources: Resources = Resources()
    ports: tuple[Port, ...] | None = None
    restart_policy: str = ""


class Requirement(Struct, frozen=True):
    """A node selector requirement."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class SelectorTerm(Struct, frozen=True):
    """A node selector term; only what pins a pod to a node is read."""

    match_fields: tuple[Requirement, ...] | None = None


class NodeSelector(Struct, frozen=True):
    """Terms, one of which must match."""

    node_selector_terms: tuple[SelectorTerm, ...] | None = None


class NodeAffinity(Struct, frozen=True):
    """affinity.nodeAffinity."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class Affinity(Struct, frozen=True):
    """affinity."""

    node_affinity: NodeAffinity | None = None


class PodSpec(Struct, frozen=True):
    """spec of a pod."""

    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] | None = None
    node_name: str = ""
    overhead: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    resources: Resources | None = None
    affinity: Affinity | None = None


class Running(Struct, frozen=True):
    """state.running."""

    started_at: str | None = None


class Waiting(Struct, frozen=True):
    """state.waiting."""

    reason: str = ""
    message: str = ""


class Terminated(Struct, frozen=True):
    """state.terminated."""

    exit_code: int
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class ContainerState(Struct, frozen=True):
    """Exactly one of them is set; none means waiting."""

    running: Running | None = None
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True):
    """status.containerStatuses[]."""

    name: str
    state: ContainerState = ContainerState()


class PodStatus(Struct, frozen=True):
    """status of a pod."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    pod_ip: str | None = msgspec.field(name="podIP", default=None)


class Pod(Struct, frozen=True):
    """v1 Pod."""

    metadata: PodMeta
    spec: PodSpec
    status: PodStatus = PodStatus()
