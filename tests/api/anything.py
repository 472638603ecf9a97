"""A job with everything in it that the operator reads, and what may stand anywhere in its place."""

from __future__ import annotations

from typing import Any

from tests.api.jobs import make_container, make_job

ODD = [
    None,
    True,
    0,
    -1,
    0.5,
    2**70,
    "",
    "x",
    "1",
    "9" * 5000,
    [],
    [None],
    [1],
    ["x"],
    [[]],
    [{}],
    {},
    {"a": None},
    {"a": 1},
    {"a": {"a": "x"}},
]

FULL = make_job(
    nprocPerNode=2,
    template={
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {
            "containers": [
                make_container(
                    env=[{"name": "A", "value": "1"}],
                    ports=[{"containerPort": 1, "hostPort": 2}],
                    resources={"limits": {"nvidia.com/gpu": 1, "cpu": "1"}, "requests": {"cpu": "500m"}},
                    volumeMounts=[{"name": "v", "mountPath": "/v"}],
                ),
            ],
            "initContainers": [make_container(name="init", resources={"requests": {"memory": "1Gi"}})],
            "volumes": [
                {"name": "v", "emptyDir": {}},
                {"name": "w", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "x", "ephemeral": {"volumeClaimTemplate": {}}},
            ],
            "imagePullSecrets": [{"name": "registry"}],
            "hostNetwork": True,
            "nodeSelector": {"a": "b"},
            "overhead": {"cpu": "1m"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "gpus", "operator": "Gt", "values": ["1"]}]},
                            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
                        ]
                    }
                },
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []},
            },
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "t", "whenUnsatisfiable": "ScheduleAnyway"}],
        },
    },
    runtime={"mode": "Elastic", "inject": True, "python": "python3", "preload": ["numpy"]},
    elasticity={
        "checkpointPath": "/v/last",
        "checkpointComplete": "done",
        "checkpointSignal": "SIGUSR1",
        "alignTimeoutSeconds": 5,
    },
    recovery={"nodeLossSeconds": 10, "stallSeconds": 60},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in items for place in places(child, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """`value` with `new` at a path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


def nested(value: Any, levels: int) -> Any:
    """`value` in mappings in mappings."""
    for _ in range(levels):
        value = {"a": value}
    return value
