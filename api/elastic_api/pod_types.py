"""The types of the parts of a pod template that the operator reads or extends; all other parts pass unread.

With a template that fits these models, the code that builds and places pods meets no unexpected type.
`template_rules.py` checks whether the values make sense together, and the API server checks the rest of the template.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from elastic_api.quantity import MAX, REMEDY, QuantityError, milli, units


class Shape(BaseModel):
    """Strict: YAML's 1 is no string. `null` means absent, as for the API server."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", strict=True)


def _quantity(value: object) -> object:
    try:
        negative, absurd = milli(value) < 0, units(value) == MAX
    except QuantityError as error:
        raise ValueError(f"must be {REMEDY}") from error
    if negative:
        raise ValueError("must be 0 or more")
    if absurd:
        raise ValueError("must be smaller: no node has this much")
    return value


Quantity = Annotated[Any, AfterValidator(_quantity)]
Name = Annotated[str, Field(min_length=1)]
Strings = dict[str, str]
Object = dict[str, Any]


class Metadata(Shape, extra="forbid"):
    """All fields of metadata, so that a misspelt one is noticed: the API server gets labels and annotations only.

    The others mean nothing in a template, but tools write them.
    """

    labels: Strings | None = None
    annotations: Strings | None = None
    name: Any = None
    generate_name: Any = None
    namespace: Any = None
    creation_timestamp: Any = None
    deletion_timestamp: Any = None
    deletion_grace_period_seconds: Any = None
    finalizers: Any = None
    generation: Any = None
    managed_fields: Any = None
    owner_references: Any = None
    resource_version: Any = None
    self_link: Any = None
    uid: Any = None


class Env(Shape):
    name: Name
    value: str | None = None
    value_from: Object | None = None


class Port(Shape):
    container_port: int | None = None
    host_port: int | None = None
    host_ip: str | None = Field(default=None, alias="hostIP")
    protocol: str | None = None
    name: str | None = None


class VolumeMount(Shape):
    name: Name
    mount_path: Name


class ResourceRequirements(Shape):
    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None
    claims: list[Object] | None = None


class Container(Shape):
    name: Name
    image: Name
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    env: list[Env] | None = None
    env_from: list[Object] | None = None
    ports: list[Port] | None = None
    resources: ResourceRequirements | None = None
    volume_mounts: list[VolumeMount] | None = None
    restart_policy: str | None = None
    lifecycle: Object | None = None
    security_context: Object | None = None
    termination_message_path: str | None = None
    termination_message_policy: str | None = None
    image_pull_policy: str | None = None


class PersistentVolumeClaim(Shape):
    claim_name: Name


class Volume(Shape):
    name: Name
    empty_dir: Object | None = None
    persistent_volume_claim: PersistentVolumeClaim | None = None
    ephemeral: Object | None = None


class NodeSelectorRequirement(Shape):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] | None = None


class NodeSelectorTerm(Shape):
    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(Shape):
    node_selector_terms: list[NodeSelectorTerm]


class NodeAffinity(Shape):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[Object] | None = None


class PodAffinity(Shape):
    required_during_scheduling_ignored_during_execution: list[Object] | None = None
    preferred_during_scheduling_ignored_during_execution: list[Object] | None = None


class Affinity(Shape):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Shape):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class TopologySpreadConstraint(Shape):
    max_skew: int | None = None
    topology_key: str | None = None
    when_unsatisfiable: str | None = None


class PullSecret(Shape):
    name: str | None = None


class PodSpec(Shape):
    containers: list[Container] = Field(min_length=1)
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    resources: ResourceRequirements | None = None
    overhead: dict[str, Quantity] | None = None
    node_selector: Strings | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    resource_claims: list[Object] | None = None
    scheduling_gates: list[Object] | None = None
    image_pull_secrets: list[PullSecret] | None = None
    scheduler_name: str | None = None
    node_name: str | None = None
    priority_class_name: str | None = None
    runtime_class_name: str | None = None
    service_account_name: str | None = None
    hostname: str | None = None
    subdomain: str | None = None
    restart_policy: str | None = None
    enable_service_links: bool | None = None
    host_network: bool | None = None
    share_process_namespace: bool | None = None
    termination_grace_period_seconds: Annotated[int, Field(ge=0)] | None = None
    security_context: Object | None = None


class PodTemplate(Shape, extra="forbid"):
    """All fields of a template: a field that is beside `spec` by a wrong indentation would never reach the API
    server.
    """

    metadata: Metadata | None = None
    spec: PodSpec
