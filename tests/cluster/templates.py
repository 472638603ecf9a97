"""Builders with defaults for what the tests apply: jobs, their pod templates, pods of others."""

from __future__ import annotations

from typing import Any

from devcluster.images import BASE_REF, PAUSE_REF
from elastic_api.job import API_VERSION, KIND

Object = dict[str, Any]

STAY = "import time; time.sleep(3600)"
"""A script that neither ends nor imports torch."""


def script(code: str = STAY, **fields: Any) -> Object:
    """A pod template whose `args` give torchrun a script: torchrun is the image's own, started by the operator."""
    return template(args=["--no-python", "python3", "-c", code], **fields)


def command(words: str = "sleep 3600", **fields: Any) -> Object:
    """A pod template that runs a shell command as it is: nothing of torch, pods that are up in a second."""
    return template(command=["sh", "-c", words], **fields)


def template(
    *,
    gpus: int = 1,
    env: dict[str, str] | None = None,
    limits: dict[str, str] | None = None,
    requests: dict[str, str] | None = None,
    image: str = BASE_REF,
    pod: Object | None = None,
    **container: Any,
) -> Object:
    """A pod template with one container `pytorch`; `pod` are more fields of the pod's spec."""
    resources = {"limits": {**({"nvidia.com/gpu": gpus} if gpus else {}), **(limits or {})}, "requests": requests or {}}
    main = {
        "name": "pytorch",
        "image": image,
        "imagePullPolicy": "Never",
        "env": [{"name": name, "value": value} for name, value in (env or {}).items()],
        "resources": resources,
        **container,
    }
    return {"spec": {"containers": [main], **(pod or {})}}


def job(name: str = "toy", *, min: int = 1, max: int = 1, template: Object | None = None, **spec: Any) -> Object:
    """A job whose pods are quick to leave and which is quick to grow; `spec` are more fields of its spec."""
    elasticity = {"gracePeriodSeconds": 2, "scaleUpDelaySeconds": 0, **spec.pop("elasticity", {})}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {
            "minReplicas": min,
            "maxReplicas": max,
            "template": template or command(),
            "elasticity": elasticity,
            **spec,
        },
    }


def foreign_pod(name: str = "foreign", *, gpus: int = 1, node: str = "", **spec: Any) -> Object:
    """Somebody else's pod; it holds its GPUs until it is deleted."""
    selector = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    container = {
        "name": "main",
        "image": PAUSE_REF,
        "imagePullPolicy": "Never",
        "resources": {"limits": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **selector, **spec},
    }
