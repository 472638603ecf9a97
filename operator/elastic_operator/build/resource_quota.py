"""The ResourceQuota of a namespace that a policy covers: it limits the GPUs of pods of no job there (98).

The quota leaves out pods of jobs by their PriorityClasses, which only the operator can give to a pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

QUOTA_NAME = "elastic-pytorch-plain-pods"
"""All quotas have this name. The API server's refusals show it, and the operator's rights are limited to it."""


def build_resource_quota(namespace: str, limits: Mapping[str, int], *, classes: Sequence[str]) -> dict[str, Any]:
    """The quota limits each extended resource; pods of the PriorityClasses `classes` do not count."""
    others = {"scopeName": "PriorityClass", "operator": "NotIn", "values": list(classes)}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": QUOTA_NAME,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "elastic-pytorch"},
        },
        "spec": {
            "hard": {f"requests.{resource}": str(gpus) for resource, gpus in limits.items()},
            "scopeSelector": {"matchExpressions": [others]},
        },
    }
