"""The operator's settings: one YAML file, overridden by `ELASTIC_OPERATOR_*` variables; nothing else is configured.

`ELASTIC_OPERATOR_LOGGING__LEVEL=debug` sets `logging.level`; a value is read as YAML, so lists and numbers work. An
empty variable sets nothing, because Helm templates pass one for an absent value. `""`, with its quotes, is the empty
string.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo
from pydantic.alias_generators import to_camel

from elastic_api.invalid import field_errors
from elastic_api.job import MAX_SECONDS, ApiModel
from elastic_api.network import EgressRule, IngressRule
from elastic_api.policy import MAX_PRIORITY, MAX_WEIGHT, Gpus, PerJob
from elastic_api.template import GPU_RESOURCES
from elastic_operator.build.network_policy import JobNetwork
from elastic_operator.build.request import BuildSettings
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings
from elastic_operator.plan.facts.job import Provisioning
from elastic_operator.plan.facts.team import DEFAULT_FLAVOR, DEFAULT_POLICY, NO_POLICY, Flavor, Quota, Team

PREFIX = "ELASTIC_OPERATOR_"
DEFAULT_FILE = Path("/etc/elastic-operator/settings.yaml")

ExtendedResource = Annotated[str, Field(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")]

SecretName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]


class SettingsError(ValueError):
    """An unusable setting. The message names it, its value and what to write instead."""


class Logging(ApiModel):
    """The operator's log."""

    format: Literal["text", "json"] = "text"
    """Lines for readers, or one JSON object a line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is written."""


class GpuFlavor(ApiModel):
    """A kind of GPU: the GPUs of these extended resources on nodes with these labels."""

    name: str = Field(min_length=1, max_length=63)
    """The name in policies and metrics."""
    resources: tuple[ExtendedResource, ...] = Field(min_length=1)
    """The extended resources that pods request, such as nvidia.com/gpu."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the nodes that have them; empty: any node."""


def _apart(flavors: tuple[GpuFlavor, ...]) -> tuple[GpuFlavor, ...]:
    """The flavors, after a check that no GPU belongs to two of them."""
    for one, other in combinations(flavors, 2):
        if one.name == other.name:
            raise ValueError(f"two flavors are called {one.name!r}; give each a different name")
        shared = sorted(set(one.resources) & set(other.resources))
        told_apart = any(other.node_selector.get(key, value) != value for key, value in one.node_selector.items())
        if shared and not told_apart:
            raise ValueError(
                f"flavors {one.name!r} and {other.name!r} overlap: both have {shared[0]}, and one node can have the"
                " labels of both; give both a nodeSelector with different values of one label, or name"
                f" {shared[0]} in one of them only"
            )
    return flavors


class DefaultBorrowing(ApiModel):
    """How many idle GPUs namespaces without a policy may use."""

    limit: Gpus | None = None
    """GPUs of each flavor; None: all, 0: none."""
    weight: int = Field(1, ge=0, le=MAX_WEIGHT)
    """Their weight in sharing unguaranteed GPUs, compared with the policies' weights."""


class DefaultPolicy(ApiModel):
    """The rules for namespaces that no GPUQuotaPolicy covers. They have no guarantee (111).

    They borrow together as one team and divide its GPUs among themselves, so more namespaces get no more. With
    `per_namespace` each is a separate team and may borrow this much.
    """

    per_namespace: bool = False
    """Whether limit and weight apply to each namespace instead of all together."""
    borrowing: DefaultBorrowing = DefaultBorrowing()
    """How many idle GPUs they may use."""
    priority: int = Field(0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    """The tier for idle GPUs; the highest tier is first."""
    per_job: PerJob = PerJob()
    """The limits of one of their jobs."""


class ReclaimMode(StrEnum):
    """Whether the operator reclaims GPUs for teams that are entitled to them."""

    ON = "On"
    DRY_RUN = "DryRun"
    OFF = "Off"


def _as_written(mode: object) -> object:
    """YAML reads a bare On or Off as a boolean."""
    if isinstance(mode, bool):
        return ReclaimMode.ON if mode else ReclaimMode.OFF
    return mode


LEAST_EVICTIONS = 16
"""This many pods may be evicted for one team within a minute, even in a small cluster."""


class ReclaimSettings(ApiModel):
    """How GPUs are reclaimed (138).

    The defaults of the two limits grow with the cluster, and so does the number of pods that a wrong policy evicts at
    once. A default allows one preemptor of each team within its guarantee any number of evictions in a minute.
    """

    mode: Annotated[ReclaimMode, BeforeValidator(_as_written)] = ReclaimMode.ON
    """DryRun: the operator only reports evictions, in events and metrics."""
    paused: bool = False
    """Emergency switch: no GPUs are reclaimed; idle ones are still granted."""
    max_evictions_per_decision: int | None = Field(None, ge=1)
    """The most pods of others that may be evicted within a minute for the jobs and foreign pods of one team; None: half
    the number of the cluster's GPUs, at least 16.
    """
    max_evictions_per_minute: int | None = Field(None, ge=1)
    """The most pods of others that may be evicted within a minute for all teams; None: the number of the cluster's
    GPUs, at least 32.
    """
    reservation_seconds: int = Field(30, ge=1, le=3600)
    """Seconds for which a foreign pod's place stays reserved after it is free."""
    max_grace_period_seconds: int = Field(300, ge=1, le=86_400)
    """The longest grace period of a leaving pod (seconds), unless its team's policy has another one."""

    def most_evictions(self, gpus: int) -> tuple[int, int]:
        """The most pods that may be evicted within a minute for one team, and for all, in a cluster with this many GPUs
        (138).
        """
        per_team = self.max_evictions_per_decision or max(LEAST_EVICTIONS, gpus // 2)
        return per_team, self.max_evictions_per_minute or max(2 * LEAST_EVICTIONS, gpus)


class JobNetworkPolicy(ApiModel):
    """The peers of a job's pods, beside themselves and this operator: those that may connect to them, and those that
    they may connect to.
    """

    enabled: bool = False
    """Whether each job has a NetworkPolicy."""
    ingress: tuple[IngressRule, ...] = ()
    """The peers that may connect to them, as in a NetworkPolicy."""
    egress: tuple[EgressRule, ...] | None = None
    """Further peers to which they may connect, beside each other and DNS, as in a NetworkPolicy; None: anywhere."""


class PlainPodQuota(ApiModel):
    """The limit of plain pods (pods of no job) to the guarantee of their team (98).

    It needs the chart's admission rules: only the operator may give a pod the PriorityClasses of jobs' pods.
    """

    enabled: bool = False
    """Whether a ResourceQuota limits plain pods in each namespace that a policy covers."""


def _needs_classes(quota: PlainPodQuota, settings: ValidationInfo) -> PlainPodQuota:
    """The quota, after a check that it can tell pods of jobs from others."""
    for name in ("worker_priority_class_name", "master_priority_class_name"):
        if quota.enabled and settings.data.get(name) == "":
            raise ValueError(
                f"{to_camel(name)} is empty, and pods of jobs are distinguished by their PriorityClasses; name one"
                " there, or switch this off"
            )
    return quota


class Settings(ApiModel):
    """All settings, with their defaults. The chart's values.yaml says more about each."""

    flavors: Annotated[tuple[GpuFlavor, ...], AfterValidator(_apart)] = Field(
        (GpuFlavor(name=DEFAULT_FLAVOR, resources=GPU_RESOURCES),), min_length=1
    )
    """The kinds of GPU. No GPU may have two kinds."""
    default_policy: DefaultPolicy = DefaultPolicy()
    """The rules for namespaces that no GPUQuotaPolicy covers."""
    starvation_seconds: int = Field(600, ge=0, le=MAX_SECONDS)
    """Seconds after which a waiting job gets room that becomes free before younger jobs of its team and priority."""
    reclaim: ReclaimSettings = ReclaimSettings()
    """Whether and how fast GPUs are reclaimed for teams that are entitled to them."""
    nominate_for: tuple[str, ...] = ("default-scheduler",)
    """Schedulers for whose pods GPUs are reclaimed; they must honour status.nominatedNodeName."""
    provisioning: Literal["None", "PendingPods"] = "None"
    """PendingPods: if a job within its quota lacks only nodes, the pods of its minimum wait for new nodes (49)."""
    provisioning_delay_seconds: int = Field(30, ge=0, le=MAX_SECONDS)
    """Seconds for which a job lacks nodes before the operator creates such pods."""
    provisioning_timeout_seconds: int = Field(900, ge=1, le=MAX_SECONDS)
    """Seconds after which the operator deletes these pods; it creates them again later."""
    start_timeout_seconds: int = Field(300, ge=0, le=MAX_SECONDS)
    """Seconds in which pods must start on their nodes, otherwise the job gives its GPUs back (136); 0: no limit."""
    watch_namespaces: tuple[str, ...] = ()
    """Namespaces whose jobs the operator serves; empty: all."""
    worker_priority_class_name: str = "elastic-pytorch-worker"
    """The PriorityClass of the workers' pods; "" leaves it to the API server."""
    master_priority_class_name: str = "elastic-pytorch-master"
    """The PriorityClass of the masters' pods. If it is higher, kube-scheduler preempts workers first (9)."""
    job_priority_class_names: tuple[str, ...] = ()
    """The classes that jobs may name in spec.priorityClassName (96); empty: all but those that begin with system-."""
    worker_image: str = ""
    """The image with the launcher for the pods of Elastic jobs; the chart sets it."""
    worker_image_pull_secrets: tuple[SecretName, ...] = ()
    """Secrets, in the namespaces of the jobs, with which the kubelet pulls the workerImage."""
    job_network_policy: JobNetworkPolicy = JobNetworkPolicy()
    """A NetworkPolicy for each job."""
    authorize_metrics: bool = False
    """Whether only accounts whose roles in the cluster allow them to get /metrics may read it."""
    plain_pod_quota: Annotated[PlainPodQuota, AfterValidator(_needs_classes)] = PlainPodQuota()
    """Whether a quota limits plain pods to the guarantee of their team."""
    port: int = Field(8080, ge=0, le=65535)
    """The port of /healthz, /readyz and /metrics; 0: any free one."""
    logging: Logging = Logging()
    """How the operator logs."""

    @property
    def allocation(self) -> AllocationSettings:
        """The settings that allocations depend on. It is made at each call: `model_copy` would copy a kept one."""
        uncovered, is_shared = self._uncovered(), not self.default_policy.per_namespace
        return AllocationSettings(
            gpu_resources=tuple(dict.fromkeys(resource for flavor in self.flavors for resource in flavor.resources)),
            flavors=tuple(Flavor(f.name, f.resources, f.node_selector) for f in self.flavors),
            default_team=replace(uncovered, parent=DEFAULT_POLICY, quotas={}) if is_shared else uncovered,
            default_parents=(replace(uncovered, name=DEFAULT_POLICY),) if is_shared else (),
            starvation_seconds=self.starvation_seconds,
        )

    def build(self, operator_namespace: str) -> BuildSettings:
        return BuildSettings(
            master_priority_class=self.master_priority_class_name,
            worker_priority_class=self.worker_priority_class_name,
            gpu_resources=self.allocation.gpu_resources,
            worker_image=self.worker_image,
            worker_pull_secrets=self.worker_image_pull_secrets,
            network=self.job_network(operator_namespace),
        )

    def _uncovered(self) -> Team:
        """The rules for namespaces without a policy, as those of one team."""
        policy = self.default_policy
        quota = Quota(borrow_limit=policy.borrowing.limit, weight=policy.borrowing.weight)
        return replace(
            NO_POLICY,
            quotas={flavor.name: quota for flavor in self.flavors} if quota != Quota() else {},
            priority=policy.priority,
            max_gpus_per_job=policy.per_job.max_gpus,
        )

    def job_may_name(self, priority_class: str) -> bool:
        """Whether that PriorityClass may order a job among jobs (96). Kubernetes keeps the prefix `system-`
        for itself.
        """
        if self.job_priority_class_names:
            return priority_class in self.job_priority_class_names
        return not priority_class.startswith("system-")

    @property
    def node_provisioning(self) -> Provisioning | None:
        """The rules by which pods request nodes (49); None if they do not."""
        if self.provisioning == "None":
            return None
        return Provisioning(self.provisioning_delay_seconds, self.provisioning_timeout_seconds)

    def job_network(self, operator_namespace: str) -> JobNetwork | None:
        """The rules of jobs' NetworkPolicies; None if jobs have none."""
        policy = self.job_network_policy
        if not policy.enabled:
            return None
        egress = None if policy.egress is None else tuple(map(_as_written_there, policy.egress))
        return JobNetwork(operator_namespace, tuple(map(_as_written_there, policy.ingress)), egress)

    @property
    def job_pod_classes(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.worker_priority_class_name, self.master_priority_class_name)))

    def watches(self, namespace: str) -> bool:
        """Whether this operator serves jobs of that namespace."""
        return not self.watch_namespaces or namespace in self.watch_namespaces


def _as_written_there(rule: ApiModel) -> dict[str, Any]:
    """A rule as Kubernetes has it."""
    return rule.model_dump(mode="json", by_alias=True, exclude_none=True)


def load(environ: Mapping[str, str], file: Path = DEFAULT_FILE) -> Settings:
    """Settings from `file` (absent: defaults) and the environment. Raises SettingsError for a setting that cannot be
    used.
    """
    try:
        values = yaml.safe_load(file.read_text()) if file.is_file() else {}
    except yaml.YAMLError as error:
        raise SettingsError(f"{file} is not YAML: {error}") from error
    if not isinstance(values or {}, dict):
        raise SettingsError(f"{file} must hold a mapping of settings, not {type(values).__name__}")
    merged = _overridden(values or {}, environ)
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        problems = "; ".join(map(str, field_errors(error, at=())))
        raise SettingsError(f"settings of {file} and {PREFIX}*: {problems}") from error


def _overridden(values: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The values of the file, some of them overridden by variables."""
    merged = dict(values)
    for name, text in environ.items():
        if not name.startswith(PREFIX) or not text:
            continue
        *mappings, last = (to_camel(part.lower()) for part in name.removeprefix(PREFIX).split("__"))
        target = merged
        for part in mappings:
            inner = target.get(part) or {}
            if not isinstance(inner, dict):
                raise SettingsError(f"{name} sets a part of {part}, which is {inner!r}: it must be a mapping")
            target[part] = target = dict(inner)
        try:
            target[last] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise SettingsError(f"{name} is not YAML: {error}") from error
    return merged
