"""The scenario's cluster as Kubernetes objects, in the form in which the API server sends them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from benchmarks.allocate.scenario import CPUS_PER_NODE, GPUS_PER_NODE, MOST_PODS, Scenario
from elastic_api.job import API_VERSION, KIND
from elastic_worker import contract

GPU = "nvidia.com/gpu"
STARTED = "2026-11-01T08:00:00Z"
Body = dict[str, Any]


def node(number: int) -> Body:
    """A node of 8 GPUs."""
    allocatable = {GPU: str(GPUS_PER_NODE), "cpu": str(CPUS_PER_NODE), "memory": "2Ti", "pods": "250"}
    return {
        "metadata": {**_meta(f"node-{number}"), "labels": {"kubernetes.io/hostname": f"node-{number}"}},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def job(namespace: str, name: str, *, replicas: int, generation: int = 1, most: int = MOST_PODS) -> Body:
    """A job that runs with `replicas` pods and may have `most`."""
    resources = {"limits": {GPU: 1}, "requests": {"cpu": "4", "memory": "16Gi"}}
    container = {"name": "pytorch", "image": "train:1", "args": ["train.py"], "resources": resources}
    return {
        "metadata": {**_meta(name, namespace), "generation": generation},
        "spec": {
            "minReplicas": 1,
            "maxReplicas": most,
            "elasticity": {"scaleUpDelaySeconds": 0},
            "template": {"spec": {"containers": [container]}},
        },
        "status": {
            "incarnation": 1,
            "observedGeneration": 1,
            "targetReplicas": replicas,
            "replicas": replicas,
            "startTime": STARTED,
            "runningSince": STARTED,
            "lastResizeTime": STARTED,
        },
    }


def policy(number: int, *, guaranteed: int) -> Body:
    """A team's policy: guaranteed GPUs, and a part of the others by weight."""
    quota = {"name": "default", "guaranteed": guaranteed, "borrowing": {"weight": 1}}
    return {
        "metadata": {**_meta(f"team-{number}"), "generation": 1},
        "spec": {"namespaces": [f"team-{number}"], "flavors": [quota]},
    }


def namespace(name: str) -> Body:
    """A namespace."""
    return {"metadata": {**_meta(name), "labels": {}}}


def pods(plan: Scenario) -> Iterator[Body]:
    """All pods: those of jobs, foreign pods with a GPU, and the many without GPUs."""
    names, next_index, count = plan.job_names(), Counter[int](), 0
    for number, (host, owner) in enumerate(plan.gpu_holders()):
        count += 1
        if owner is None:
            yield foreign_pod(f"notebook-{number}", host, gpus=1)
        else:
            yield own_pod(*names[owner], index=next_index[owner], host=host)
            next_index[owner] += 1
    for number in range(plan.pods - count):
        yield foreign_pod(f"web-{number}", number % plan.nodes, gpus=0)


def own_pod(namespace: str, name: str, *, index: int, host: int) -> Body:
    """Number `index` of a job's pods; 0 is the master."""
    role = "worker" if index else "master"
    body = _pod(f"{name}-{role}-{max(0, index - 1)}", namespace, host, {GPU: "1", "cpu": "4", "memory": "16Gi"})
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": name, "uid": uid(name, namespace), "controller": True}
    body["metadata"]["ownerReferences"] = [owner]
    body["metadata"]["labels"] = {contract.LABEL_INCARNATION: "1"}
    body["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    running = {"name": "pytorch", "state": {"running": {"startedAt": STARTED}}}
    body["status"]["containerStatuses"] = [running]
    return body


def foreign_pod(name: str, host: int, *, gpus: int) -> Body:
    """A pod of another owner."""
    return _pod(name, "others", host, {"cpu": "500m", "memory": "1Gi"} | ({GPU: str(gpus)} if gpus else {}))


def uid(name: str, namespace: str = "") -> str:
    """The uid of the object with that name."""
    return f"uid-{namespace}-{name}"


def _pod(name: str, namespace: str, host: int, requests: dict[str, str]) -> Body:
    container = {"name": "pytorch", "resources": {"requests": requests}}
    return {
        "metadata": _meta(name, namespace),
        "spec": {"nodeName": f"node-{host}", "containers": [container]},
        "status": {"phase": "Running"},
    }


def _meta(name: str, namespace: str = "") -> Body:
    meta = {"name": name, "uid": uid(name, namespace), "resourceVersion": "1", "creationTimestamp": STARTED}
    return meta | ({"namespace": namespace} if namespace else {})
