"""Small builders of Kubernetes objects, as dicts and as the structs they decode to."""

from __future__ import annotations

from typing import Any

from elastic_operator.cluster import objects

JOB_UID = "job-uid"


def owner(
    uid: str = JOB_UID, *, kind: str = "ElasticPyTorchJob", name: str = "toy", controller: bool = True
) -> dict[str, Any]:
    return {
        "apiVersion": "elastic-pytorch.dev/v1beta1",
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": controller,
    }


def pod_dict(
    name: str = "p",
    *,
    namespace: str = "a",
    uid: str = "",
    rv: int = 1,
    node: str = "",
    gpus: int = 0,
    cpu: str = "",
    phase: str = "Running",
    owners: tuple[dict[str, Any], ...] = (),
    host_port: int = 0,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **meta: Any,
) -> dict[str, Any]:
    requests = ({"nvidia.com/gpu": str(gpus)} if gpus else {}) | ({"cpu": cpu} if cpu else {})
    container: dict[str, Any] = {"name": "c", "image": "i", "resources": {"requests": requests}}
    if host_port:
        container["ports"] = [{"containerPort": host_port, "hostPort": host_port, "protocol": "TCP"}]
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(rv),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": list(owners),
            **meta,
        },
        "spec": {"containers": [container], **({"nodeName": node} if node else {}), **(spec or {})},
        "status": {"phase": phase, **(status or {})},
    }


def pod(name: str = "p", **fields: Any) -> objects.Pod:
    return objects.decode(pod_dict(name, **fields), objects.Pod)


def node(name: str = "n1", *, gpus: int = 4, **fields: Any) -> objects.Node:
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": {"zone": "z"}},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "8", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return objects.decode(body | fields, objects.Node)


def stored_job(name: str, *, namespace: str, uid: str = JOB_UID) -> objects.CustomObject:
    """A job of which only the name counts."""
    meta = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1"}
    return objects.decode({"metadata": meta}, objects.CustomObject)


def bound_claim(name: str, *, volume: str, namespace: str = "team-a") -> objects.PersistentVolumeClaim:
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "1"}
    body = {"metadata": meta, "spec": {"volumeName": volume}, "status": {"phase": "Bound"}}
    return objects.decode(body, objects.PersistentVolumeClaim)


def volume(name: str) -> objects.PersistentVolume:
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    return objects.decode({"metadata": meta}, objects.PersistentVolume)
