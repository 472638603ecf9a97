"""Whatever stands anywhere in a spec: parsing refuses it, or planning and building cope with it."""

from contextlib import suppress
from typing import Any

import pytest

from elastic_operator.api.invalid import InvalidSpecError
from elastic_operator.api.parse import parse_spec
from elastic_operator.api.template import GPU_RESOURCES, nproc_of
from elastic_operator.plan.shape import shape_of
from tests.api.jobs import make_container, make_job
from tests.build.objects import make_pod

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
            "hostNetwork": True,
            "nodeSelector": {"a": "b"},
            "overhead": {"cpu": "1m"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                    }
                },
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []},
            },
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "t", "whenUnsatisfiable": "ScheduleAnyway"}],
        },
    },
    recovery={"nodeLossSeconds": 10},
)


def places(value: Any, path: tuple = ()) -> list[tuple]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in items for place in places(child, (*path, key)))]


def replaced(value: Any, path: tuple, new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


def test_the_job_with_everything_in_it_is_valid():
    assert parse_spec(FULL).nproc_per_node == 2


@pytest.mark.parametrize("place", places(FULL["spec"]), ids=lambda place: ".".join(map(str, place)) or "spec")
def test_any_json_at_any_place_is_refused_or_can_be_planned_and_built(place: tuple):
    for value in ODD:
        job = {**FULL, "spec": replaced(FULL["spec"], place, value)}
        with suppress(InvalidSpecError):
            spec = parse_spec(job)
            assert nproc_of(spec, "worker") >= 1
            shape = shape_of(spec.template_of("worker"), gpu_resources=GPU_RESOURCES, volumes={"c": "bound"})
            assert min(shape.requests.values()) >= 0
            assert make_pod(spec)["spec"]["containers"]
