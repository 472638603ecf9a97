"""A `GPUQuotaPolicy` as administrators write it, and its status.

Field descriptions are `kubectl explain`'s text; defaults and bounds become the CRD's schema (see `policy_crd.py`). All
amounts are whole GPUs of one flavor. `plan/` decides how many GPUs each team gets.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from elastic_api.job import API_VERSION, ApiModel
from elastic_api.status import MAX_CONDITIONS, Condition, StatusModel

KIND = "GPUQuotaPolicy"
PLURAL = "gpuquotapolicies"
COLLECTION = f"/apis/{API_VERSION}/{PLURAL}"

MAX_GPUS = 1_000_000
"""The largest amount: far more than a cluster has, and sums of such amounts stay small."""
MAX_FLAVORS = 64
MAX_NAMESPACES = 1024
MAX_EXPRESSIONS = 32
MAX_VALUES = 64
MAX_WEIGHT = 1_000_000
MAX_PRIORITY = 1_000_000_000
MAX_RUNTIME_SECONDS = 30 * 86_400
MAX_QUANTUM_SECONDS = 30 * 86_400

Gpus = Annotated[int, Field(ge=0, le=MAX_GPUS)]
NamespaceName = Annotated[str, Field(min_length=1, max_length=63)]


class Operator(StrEnum):
    """How a label is compared with the values of an expression."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelExpression(ApiModel):
    """One demand on the labels of a namespace."""

    key: str = Field(min_length=1, max_length=317, description="The label.")
    operator: Operator = Field(
        description="In or NotIn: the label's value is one of values, or is not. Exists or DoesNotExist: the label"
        " exists, or does not."
    )
    values: list[Annotated[str, Field(max_length=63)]] = Field(
        default_factory=list,
        max_length=MAX_VALUES,
        description="The values for In and NotIn; absent for Exists and DoesNotExist.",
    )


class NamespaceSelector(ApiModel):
    """Which namespaces, by their labels; an empty one selects all."""

    match_labels: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        default_factory=dict, description="Labels that a namespace must have, each with this value."
    )
    match_expressions: list[LabelExpression] = Field(
        default_factory=list,
        max_length=MAX_EXPRESSIONS,
        description="Requirements that a namespace must meet, all of them.",
    )


class Borrowing(ApiModel):
    """Use beyond the guarantee."""

    limit: Gpus | None = Field(
        default=None,
        description="GPUs that it may use beyond its guarantee, while they are idle. Absent: all. 0: none.",
    )
    weight: int = Field(
        default=1,
        ge=0,
        le=MAX_WEIGHT,
        description="Its part of the unguaranteed GPUs, relative to the weights of the other policies that want some."
        " With 0 it borrows no GPU that another policy wants.",
    )


class Lending(ApiModel):
    """What others may use of an idle guarantee."""

    limit: Gpus | None = Field(
        default=None,
        description="GPUs of its idle guarantee that others may use. Absent: all of them. 0: none, they stay idle.",
    )


class FlavorQuota(ApiModel):
    """What the policy's namespaces may use together of one kind of GPU."""

    name: str = Field(
        min_length=1,
        max_length=63,
        description="The kind of GPU: one of the flavors in the operator's settings.",
    )
    guaranteed: int = Field(
        default=0, ge=0, le=MAX_GPUS, description="GPUs that its namespaces get whenever they request them."
    )
    borrowing: Borrowing = Field(default_factory=Borrowing, description="Use beyond the guarantee.")
    lending: Lending = Field(default_factory=Lending, description="The part of the idle guarantee that others may use.")


class PerJob(ApiModel):
    """What each single job may use."""

    max_gpus: int | None = Field(
        default=None,
        alias="maxGPUs",
        ge=1,
        le=MAX_GPUS,
        description="The most GPUs that one job may use. Absent: no limit.",
    )


class Reclaim(ApiModel):
    """How GPUs are taken back from this policy's jobs when others have the better right to them."""

    min_runtime_seconds: int = Field(
        default=0,
        ge=0,
        le=MAX_RUNTIME_SECONDS,
        description="Seconds that a job must have run before the operator may stop it for another policy. It may evict"
        " pods above minReplicas at any time.",
    )
    grace_period_seconds: int | None = Field(
        default=None,
        ge=0,
        le=86_400,
        description="The most seconds that a leaving pod of its jobs gets to stop cleanly, whatever their"
        " elasticity.gracePeriodSeconds. Absent: reclaim.maxGracePeriodSeconds of the operator's settings.",
    )


class TimeSharing(ApiModel):
    """Turns."""

    quantum_seconds: int = Field(
        ge=1,
        le=MAX_QUANTUM_SECONDS,
        description="The length of a turn, in seconds. It includes the start of a job: half an hour wastes little.",
    )


class PolicySpec(ApiModel):
    """The spec of a `GPUQuotaPolicy`."""

    namespaces: list[NamespaceName] = Field(
        default_factory=list,
        max_length=MAX_NAMESPACES,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Names of the namespaces that share these GPUs. A namespace belongs to one policy: if several name"
        " it, to the oldest, and at equal age to the first by name. A policy that is another one's parent owns none.",
    )
    namespace_selector: NamespaceSelector | None = Field(
        default=None, description="Further namespaces, chosen by their labels. Empty: all of them. Absent: none."
    )
    parent: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="Name of the policy of which this one is a part. Guarantees of the children beyond the parent's own"
        " guarantee do not hold against the parent's siblings.",
    )
    flavors: list[FlavorQuota] = Field(
        default_factory=list,
        max_length=MAX_FLAVORS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        description="Quotas by kind of GPU. Of an unlisted kind nothing is guaranteed, and any idle GPU may be"
        " borrowed.",
    )
    priority: int = Field(
        default=0,
        ge=-MAX_PRIORITY,
        le=MAX_PRIORITY,
        description="Tier for idle GPUs among siblings: the highest tier gets its GPUs first.",
    )
    per_job: PerJob = Field(default_factory=PerJob, description="The limits of each single job.")
    reclaim: Reclaim = Field(
        default_factory=Reclaim,
        description="How the operator reclaims GPUs from these namespaces for teams that are entitled to them.",
    )
    time_sharing: TimeSharing | None = Field(
        default=None,
        description="If not all jobs of one policy and priority can run, they take turns. Absent: first come, first"
        " served.",
    )


class Amounts(StatusModel):
    """GPUs, now."""

    guaranteed: int = Field(default=0, description="GPUs that are guaranteed.")
    used: int = Field(default=0, description="GPUs that all pods of its namespaces hold, also plain pods.")
    borrowed: int = Field(default=0, description="GPUs used beyond the guarantee.")
    lent: int = Field(default=0, description="GPUs of the idle guarantee that others use.")
    pending: int = Field(default=0, description="GPUs that jobs and pods wait for.")
    limit: int | None = Field(default=None, description="The most GPUs it may use. Absent: no limit.")


class FlavorAmounts(Amounts):
    """GPUs of one kind, now."""

    name: str = Field(description="The kind of GPU.")
    fair_share: int = Field(default=0, description="GPUs that it would use if all policies had exactly their share.")


class JobCounts(StatusModel):
    """Jobs, now."""

    running: int = Field(default=0, description="Jobs with pods.")
    queued: int = Field(default=0, description="Jobs that wait for their first pods.")


class PolicyConditionType(StrEnum):
    """Condition types of a policy."""

    READY = "Ready"
    OVERCOMMITTED = "Overcommitted"
    CONFLICT = "Conflict"
    FOREIGN_OVER_LIMIT = "ForeignOverLimit"
    RECLAIMING = "Reclaiming"


class PolicyStatus(StatusModel):
    """The status of a `GPUQuotaPolicy`."""

    observed_generation: int = Field(default=0, description="The metadata.generation that this status describes.")
    total: Amounts | None = Field(default=None, description="All kinds of GPU together.")
    flavors: list[FlavorAmounts] = Field(
        default_factory=list,
        max_length=MAX_FLAVORS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        description="By kind of GPU.",
    )
    jobs: JobCounts | None = Field(default=None, description="Jobs of its namespaces.")
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=MAX_CONDITIONS,
        description="Ready, Conflict (an impossible namespace or parent), Overcommitted (guarantees exceed the GPUs),"
        " ForeignOverLimit (plain pods exceed the limit) and Reclaiming (the operator evicts pods of others for GPUs to"
        " which this policy is entitled).",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
