"""Builders of jobs as users write them: the smallest valid one, with what a test changes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any


def make_container(**fields: Any) -> dict[str, Any]:
    """The main container; a field given as None is left out."""
    container = {"name": "pytorch", "image": "registry.example/train:1", "args": ["train.py"], **fields}
    return {name: value for name, value in container.items() if value is not None}


def make_template(*containers: dict[str, Any], **pod: Any) -> dict[str, Any]:
    """A pod template of `containers` (by default the main one alone) with further fields of the pod's spec."""
    return {"spec": {"containers": list(containers) or [make_container()], **pod}}


def with_gpus(count: Any, **fields: Any) -> dict[str, Any]:
    """The main container asking for `count` GPUs."""
    return make_container(resources={"limits": {"nvidia.com/gpu": count}}, **fields)


def make_job(name: str = "toy", **spec: Any) -> dict[str, Any]:
    """A job as an object of the API; a field of the spec given as None is left out."""
    fields = {"minReplicas": 1, "maxReplicas": 2, "template": make_template(), **spec}
    return deepcopy(
        {
            "apiVersion": "elastic-pytorch.dev/v1beta1",
            "kind": "ElasticPyTorchJob",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {field: value for field, value in fields.items() if value is not None},
        }
    )
