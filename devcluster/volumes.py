"""Volumes that all nodes share: the nodes are one machine, so a folder of it is one for pods of every node."""

from __future__ import annotations

from typing import Any

from devcluster.api import Api
from devcluster.names import Layout

CAPACITY = "10Gi"


def shared_claim(api: Api, layout: Layout, *, namespace: str, name: str) -> None:
    """Make `namespace` if it is missing, and in it a claim `name` bound to a folder that any user may write to."""
    folder = layout.shared / f"{namespace}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    # Pods run as any user, as on a network file system that is exported so.
    folder.chmod(0o777)
    volume = f"{namespace}-{name}"
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    if api.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}") is None:
        api.delete(f"/api/v1/persistentvolumes/{volume}")  # one that is left from a former claim binds to no other
    api.create("/api/v1/persistentvolumes", _volume(volume, path=str(folder), namespace=namespace, claim=name))
    api.create(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", _claim(name, volume=volume))


def _volume(volume: str, *, path: str, namespace: str, claim: str) -> dict[str, Any]:
    return {
        "metadata": {"name": volume},
        "spec": {
            "capacity": {"storage": CAPACITY},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "hostPath": {"path": path, "type": "Directory"},
            "claimRef": {"namespace": namespace, "name": claim},
        },
    }


def _claim(name: str, *, volume: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": volume,
            "resources": {"requests": {"storage": CAPACITY}},
        },
    }
