"""The parts of every Kubernetes object: metadata and conditions, as frozen structs of the fields that we read."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from elastic_operator.cluster.interned import intern_fields


class Struct(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A struct without cycles, so the garbage collector need not look at it."""


class OwnerReference(Struct, frozen=True):
    uid: str
    kind: str = ""
    api_version: str = ""
    name: str = ""
    controller: bool | None = None


class Meta(Struct, frozen=True):
    """metadata, with the fields that we read of every kind. `namespace` is "" for kinds without one."""

    name: str
    uid: str
    resource_version: str
    namespace: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()

    def __post_init__(self) -> None:
        intern_fields(self, "namespace", "creation_timestamp", "owner_references")

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls the object, if there is one."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class LabelledMeta(Meta, frozen=True):
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class Condition(Struct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None

    def __post_init__(self) -> None:
        intern_fields(self, "type", "status", "reason", "last_transition_time")


def find_condition(conditions: Iterable[Condition] | None, type_: str) -> Condition | None:
    return next((condition for condition in conditions or () if condition.type == type_), None)
