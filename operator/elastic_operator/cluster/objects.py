"""Kubernetes objects as frozen structs with the fields that this operator reads; decoding skips everything else.

The structs follow the API's own shape. Lists and times that Go writes as `null` when empty allow None.
`read/convert.py` says what the objects mean.
"""

from __future__ import annotations

import zlib
from typing import Any, TypeVar

import msgspec
from pydantic_core import from_json

from elastic_api.job import GROUP
from elastic_api.what_if import ANNOTATION_WHAT_IF
from elastic_operator.cluster.meta import Condition, LabelledMeta, Meta, Struct
from elastic_operator.cluster.pod import Pod as Pod
from elastic_operator.plan.facts.node import Taint
from elastic_worker.contract import MASTER_PORT

T = TypeVar("T", bound=Struct)

ANNOTATION_OPERATOR_NAMESPACE = f"{GROUP}/operator-namespace"
"""On the chart's priority classes: the namespace of the operator that they were installed with (81)."""
_COMPRESSION = (1, zlib.DEFLATED, 12, 4)
"""Level, method, and the sizes of zlib's buffers, 30 kB in all. By default they are 256 kB, which glibc would take from
the machine, and return, for each object.
"""


class NodeSpec(Struct, frozen=True):
    taints: tuple[Taint, ...] | None = None
    unschedulable: bool = False


class NodeStatus(Struct, frozen=True):
    allocatable: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] | None = None


class Node(Struct, frozen=True):
    metadata: LabelledMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def has_same_content(self, other: Node) -> bool:
        """Whether the fields of a node that we read are equal."""
        return (self.metadata.labels, self.spec, self.status) == (other.metadata.labels, other.spec, other.status)


class Namespace(Struct, frozen=True):
    metadata: LabelledMeta

    def has_same_content(self, other: Namespace) -> bool:
        """Whether the fields of a namespace that we read are equal."""
        return self.metadata.labels == other.metadata.labels


class ClassAnnotations(Struct, frozen=True, rename=None):
    operator_namespace: str = msgspec.field(name=ANNOTATION_OPERATOR_NAMESPACE, default="")


class ClassMeta(Meta, frozen=True):
    annotations: ClassAnnotations = ClassAnnotations()


class PriorityClass(Struct, frozen=True):
    metadata: ClassMeta
    value: int
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class ClaimSpec(Struct, frozen=True):
    volume_name: str = ""


class ClaimStatus(Struct, frozen=True):
    phase: str = "Pending"


class PersistentVolumeClaim(Struct, frozen=True):
    metadata: Meta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def bound(self) -> bool:
        """Whether the claim is bound to a volume, so that the nodes on which pods can mount it are known."""
        return self.status.phase == "Bound" and bool(self.spec.volume_name)


class VolumeSpec(Struct, frozen=True):
    """spec of a volume; `node_affinity` is set if not every node can mount it."""

    node_affinity: dict[str, Any] | None = None


class PersistentVolume(Struct, frozen=True):
    metadata: Meta
    spec: VolumeSpec = VolumeSpec()


class DeviceClassSpec(Struct, frozen=True):
    extended_resource_name: str | None = None


class DeviceClass(Struct, frozen=True):
    metadata: Meta
    spec: DeviceClassSpec = DeviceClassSpec()


class ServicePort(Struct, frozen=True):
    port: int = 0


class ServiceSpec(Struct, frozen=True):
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    ports: tuple[ServicePort, ...] | None = None


class Service(Struct, frozen=True):
    metadata: Meta
    spec: ServiceSpec = ServiceSpec()

    @property
    def port(self) -> int:
        """The first port; a Service of ours has a single port."""
        return next((port.port for port in self.spec.ports or ()), MASTER_PORT)


class Endpoint(Struct, frozen=True):
    addresses: tuple[str, ...] = ()
    node_name: str | None = None


class EndpointSlice(Struct, frozen=True):
    metadata: Meta
    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[ServicePort, ...] | None = None


class CustomAnnotations(Struct, frozen=True, rename=None):
    what_if: str = msgspec.field(name=ANNOTATION_WHAT_IF, default="")


class CustomMeta(LabelledMeta, frozen=True):
    generation: int = 0
    annotations: CustomAnnotations = CustomAnnotations()


class Packed:
    """A JSON object as its compressed text, which takes a fifteenth of the memory. It is rarely read (209)."""

    __slots__ = ("packed",)

    def __init__(self, value: dict[str, Any]) -> None:
        compressor = zlib.compressobj(*_COMPRESSION)
        self.packed = compressor.compress(msgspec.json.encode(value)) + compressor.flush()

    def unpack(self) -> dict[str, Any]:
        """The object, decoded again at each call."""
        text = zlib.decompress(self.packed)
        decoded: dict[str, Any]
        try:
            decoded = from_json(text)  # it makes one string of equal short ones, also of two objects
        except ValueError:  # it reads 200 levels, and the API server stores 10,000
            decoded = msgspec.json.decode(text)
        return decoded


EMPTY = Packed({})


class CustomObject(Struct, frozen=True):
    """An object of our own kinds, decoded no further than its metadata: pydantic models read `spec` and `status`."""

    metadata: CustomMeta
    spec: Packed = EMPTY
    status: Packed = EMPTY

    def has_same_content(self, other: CustomObject) -> bool:
        """Whether the user's part is equal; the status is the operator's own."""
        return self.metadata.generation == other.metadata.generation


def decode(body: dict[str, Any], type_: type[T]) -> T:
    """An answer of the API server as `type_`. Raises msgspec.ValidationError."""
    return msgspec.convert(body, type_, dec_hook=pack)


def pack(type_: type[Any], value: object) -> object:
    """For decoders: the value of a field that is a `Packed`. Raises TypeError for other types and values."""
    if type_ is not Packed or not isinstance(value, dict):
        raise TypeError(f"expected `object`, got `{type(value).__name__}`")
    return Packed(value)
