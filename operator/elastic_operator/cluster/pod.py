"""Pods as frozen structs with the fields that this operator reads; `read/convert.py` says what they mean."""

from __future__ import annotations

from typing import Any

import msgspec

from elastic_operator.cluster.interned import intern_fields
from elastic_operator.cluster.meta import Condition, Meta, Struct
from elastic_operator.plan.facts.requirements import Toleration
from elastic_worker import contract

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
JOB_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
LEADER_WORKER_LABEL = "leaderworkerset.sigs.k8s.io/group-key"


class PodLabels(Struct, frozen=True, rename=None):
    """The labels of pods that we read. Role and index come from the object's name, which cannot be edited.

    Kueue admits a pod with `queue`. The other labels tell which foreign pods belong together
    (`read/foreign/gang_key.py`).
    """

    incarnation: str = msgspec.field(name=contract.LABEL_INCARNATION, default="")
    queue: str = msgspec.field(name=QUEUE_LABEL, default="")
    pod_group: str = msgspec.field(name=POD_GROUP_LABEL, default="")
    job_set: str = msgspec.field(name=JOB_SET_LABEL, default="")
    leader_worker: str = msgspec.field(name=LEADER_WORKER_LABEL, default="")
    completion_index: str = msgspec.field(name=COMPLETION_INDEX_LABEL, default="")


class PodAnnotations(Struct, frozen=True, rename=None):
    gang: str = msgspec.field(name=contract.ANNOTATION_GANG, default="")
    nnodes: str = msgspec.field(name=contract.ANNOTATION_NNODES, default="")
    template: str = msgspec.field(name=contract.ANNOTATION_TEMPLATE, default="")
    secret: str = msgspec.field(name=contract.ANNOTATION_SECRET, default="")
    membership: str = msgspec.field(name=contract.ANNOTATION_MEMBERSHIP, default="")
    master_epoch: str = msgspec.field(name=contract.ANNOTATION_MASTER_EPOCH, default="")


class PodMeta(Meta, frozen=True):
    labels: PodLabels = PodLabels()
    annotations: PodAnnotations = PodAnnotations()
    deletion_grace_period_seconds: int | None = None
    finalizers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        intern_fields(self, "labels", "annotations", "finalizers")


class ResourceRequirements(Struct, frozen=True):
    """resources of a container or a pod: quantities as written."""

    requests: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    limits: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class ContainerPort(Struct, frozen=True):
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class Container(Struct, frozen=True):
    name: str
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str = ""


class AnyJson(Struct, frozen=True):
    """An object of which only the presence matters."""


class Requirement(Struct, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class SelectorTerm(Struct, frozen=True):
    match_expressions: tuple[Requirement, ...] | None = None
    match_fields: tuple[Requirement, ...] | None = None


class NodeSelector(Struct, frozen=True):
    """The terms; a node must match at least one term."""

    node_selector_terms: tuple[SelectorTerm, ...] | None = None


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class NodeAffinity(Struct, frozen=True):
    required: NodeSelector | None = msgspec.field(name=_REQUIRED, default=None)


class PodAffinity(Struct, frozen=True):
    """affinity.podAffinity or podAntiAffinity: only whether any term is required."""

    required: tuple[AnyJson, ...] | None = msgspec.field(name=_REQUIRED, default=None)


class Affinity(Struct, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(Struct, frozen=True):
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"


class ClaimSource(Struct, frozen=True):
    claim_name: str = ""


class EphemeralSource(Struct, frozen=True):
    """ephemeral of a volume: only whether a claim is created for it."""

    volume_claim_template: dict[str, Any] | None = None


class Volume(Struct, frozen=True):
    """A volume, with the fields that decide where a pod can run."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class SchedulingGroup(Struct, frozen=True):
    """spec.schedulingGroup: the PodGroup of the pod, from Kubernetes 1.36 on."""

    pod_group_name: str = ""


class SchedulingGate(Struct, frozen=True):
    """A scheduling gate: no scheduler looks at the pod while it has one."""

    name: str = ""


class PodSpec(Struct, frozen=True):
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] | None = None
    node_name: str = ""
    overhead: dict[str, str | int | float] | None = None
    resources: ResourceRequirements | None = None
    affinity: Affinity | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[SpreadConstraint, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    resource_claims: tuple[AnyJson, ...] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    scheduling_group: SchedulingGroup | None = None
    scheduler_name: str = ""
    priority: int | None = None
    preemption_policy: str = "PreemptLowerPriority"
    termination_grace_period_seconds: int = 30

    def __post_init__(self) -> None:
        intern_fields(
            self,
            "containers",
            "init_containers",
            "node_name",
            "overhead",
            "resources",
            "affinity",
            "node_selector",
            "tolerations",
            "volumes",
            "scheduler_name",
            "preemption_policy",
        )


class Running(Struct, frozen=True):
    started_at: str | None = None


class Waiting(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class Terminated(Struct, frozen=True):
    exit_code: int
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class ContainerState(Struct, frozen=True):
    """Exactly one of these states is set; a container without a state waits."""

    running: Running | None = None
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True):
    name: str
    state: ContainerState = ContainerState()

    def __post_init__(self) -> None:
        intern_fields(self, "name")


class PodStatus(Struct, frozen=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    start_time: str | None = None
    nominated_node_name: str = ""

    def __post_init__(self) -> None:
        intern_fields(self, "phase", "start_time", "conditions")


class Pod(Struct, frozen=True):
    metadata: PodMeta
    spec: PodSpec
    status: PodStatus = PodStatus()
