"""Volumes that all nodes share. The nodes are on one machine, so pods of every node can use the same folder."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from devcluster.api import Api
from devcluster.names import Layout

CAPACITY = "10Gi"


def shared_claim(api: Api, layout: Layout, *, namespace: str, name: str) -> None:
    """Make `namespace` if it is missing, and in it a claim `name` bound to a folder that any user may write to."""
    folder = _folder(layout, f"{namespace}-{name}")
    volume = f"{namespace}-{name}"
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    if api.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}") is None:
        api.delete(f"/api/v1/persistentvolumes/{volume}")  # a volume of an earlier claim binds to no other
    bound = {"claimRef": {"namespace": namespace, "name": name}}
    api.create("/api/v1/persistentvolumes", _volume(volume, path=str(folder), **bound))
    api.create(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", _claim(name, volume=volume))


def offer(api: Api, layout: Layout, *, count: int) -> None:
    """Offer that many empty volumes for any claims without a class, as a provisioner would make them."""
    for number in range(1, count + 1):
        path = f"/api/v1/persistentvolumes/free-{number}"
        there = api.get(path)
        if there is not None and there["status"].get("phase") == "Released":  # its claim is deleted
            api.delete(path)
            there = None
        if there is None:
            folder = _folder(layout, f"free-{number}-{secrets.token_hex(4)}")
            api.create("/api/v1/persistentvolumes", _volume(f"free-{number}", path=str(folder)))


def _folder(layout: Layout, name: str) -> Path:
    """A folder that any user may write to, since pods run as any user, like an export of NFS for all users."""
    folder = layout.shared / name
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    return folder


def _volume(volume: str, *, path: str, **bound: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": volume},
        "spec": {
            "capacity": {"storage": CAPACITY},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "hostPath": {"path": path, "type": "Directory"},
            **bound,
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
