"""The stores of all watches, which hold everything that is known of the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store


@dataclass(slots=True)
class Stores:
    jobs: Store[objects.CustomObject]
    pods: Store[objects.Pod]
    nodes: Store[objects.Node]
    priority_classes: Store[objects.PriorityClass]
    claims: Store[objects.PersistentVolumeClaim]
    volumes: Store[objects.PersistentVolume]
    services: Store[objects.Service]
    slices: Store[objects.EndpointSlice]
    policies: Store[objects.CustomObject] = field(default_factory=Store)
    namespaces: Store[objects.Namespace] = field(default_factory=Store)
    device_classes: Store[objects.DeviceClass] = field(default_factory=Store)
