"""Builders of jobs with a status, of pods and of events, as an API server would give them."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.api.jobs import make_job

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
WANTS = (
    "The job gets 2 of 3 pods. 1 more needs 4 nvidia.com/gpu on one node; 2 usable nodes have 0 of 8 GPUs free."
    " Add a node, or wait."
)
TAKEN = "The job shrinks from 3 to 2 pods: 4 GPUs go to pod vision/notebook, whose team is guaranteed them."


def ago(seconds: float) -> str:
    """A time before NOW, as the API writes it."""
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(type_: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    """One condition."""
    told = {"type": type_, "status": status, "reason": reason, "message": message}
    return {**told, "lastTransitionTime": ago(60), "observedGeneration": 1}


def change(before: int, after: int, reason: str, message: str, **cost: Any) -> dict[str, Any]:
    """One change of size."""
    return {"time": ago(30), "from": before, "to": after, "reason": reason, "message": message, **cost}


def running_status(**fields: Any) -> dict[str, Any]:
    """Of a job with two of three pods, one of which another team has got back."""
    status = {
        "observedGeneration": 1,
        "replicas": 2,
        "targetReplicas": 2,
        "gpus": 8,
        "worldSize": 8,
        "restarts": 0,
        "conditions": [
            condition("Ready", "True", "Running", "2 pods run with world size 8."),
            condition("FullSize", "False", "InsufficientNodes", WANTS),
        ],
        "history": [
            change(3, 2, "QuotaReclaimed", TAKEN, pauseSeconds=0.5, lostSteps=7),
            change(0, 3, "Started", "The job gets 3 of 3 pods."),
        ],
        "pods": [
            {"name": "toy-master-0", "role": "master", "phase": "Running", "gpus": 4, "node": "n1", "rank": 0},
            {"name": "toy-worker-0", "role": "worker", "phase": "Running", "gpus": 4, "node": "n2", "rank": 4},
        ],
    }
    return deepcopy({**status, **fields})


def ended_status(kind: str, message: str) -> dict[str, Any]:
    """Of a job that has Succeeded or Failed."""
    conditions = [condition("Ready", "True" if kind == "Succeeded" else "False", kind, message)]
    conditions.append(condition(kind, "True", kind, message))
    return running_status(replicas=0, gpus=0, worldSize=0, pods=[], conditions=conditions, completionTime=ago(1))


def stored_job(name: str = "toy", *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A job as it is stored, an hour old."""
    job = make_job(name, **{"maxReplicas": 3, **spec})
    meta = {"uid": f"uid-{name}", "generation": 1, "resourceVersion": "7", "creationTimestamp": ago(3600)}
    job["metadata"] |= meta
    return {**job, "status": running_status() if status is None else status}


def stored_pod(name: str, *, state: str = "running", containers: tuple[str, ...] = ("pytorch",)) -> dict[str, Any]:
    """A pod whose containers are all in that state."""
    statuses = [{"name": one, "state": {state: {}}} for one in containers]
    spec = {"containers": [{"name": one} for one in containers]}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec, "status": {"containerStatuses": statuses}}


def make_event(kind: str, name: str, reason: str, *, at: str, uid: str = "", **fields: Any) -> dict[str, Any]:
    """An event of the core API."""
    about = {"kind": kind, "name": name, "uid": uid}
    meta = {"name": f"{name}.{reason.lower()}", "uid": f"uid-{name}-{reason}", "creationTimestamp": at}
    told = {"type": "Normal", "reason": reason, "message": f"{reason} it.", "lastTimestamp": at}
    return {"metadata": meta, "involvedObject": about, **told, **fields}
