"""Builders of quota policies as administrators write them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any


def make_flavor(name: str = "default", **fields: Any) -> dict[str, Any]:
    """A quota of one flavor."""
    return {"name": name, **fields}


def make_policy(name: str = "team-a", **spec: Any) -> dict[str, Any]:
    """A policy as an object of the API."""
    return deepcopy(
        {
            "apiVersion": "elastic-pytorch.dev/v1beta1",
            "kind": "GPUQuotaPolicy",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def full_policy() -> dict[str, Any]:
    """A policy with every field."""
    return make_policy(
        namespaces=["team-a", "team-a-dev"],
        namespaceSelector={
            "matchLabels": {"team": "a"},
            "matchExpressions": [
                {"key": "stage", "operator": "NotIn", "values": ["scratch"]},
                {"key": "shared", "operator": "DoesNotExist"},
            ],
        },
        parent="research",
        flavors=[
            make_flavor(guaranteed=2, borrowing={"limit": 4, "weight": 3}, lending={"limit": 1}),
            make_flavor("h100", guaranteed=8, borrowing={"weight": 0}, lending={}),
        ],
        priority=-5,
        perJob={"maxGPUs": 64},
        reclaim={"minRuntimeSeconds": 600, "gracePeriodSeconds": 120},
        timeSharing={"quantumSeconds": 1800},
    )
