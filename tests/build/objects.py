"""Builders of what `build/` takes, with defaults for all that a test does not speak about."""

from dataclasses import dataclass
from typing import Any

from elastic_api.job import JobSpec
from elastic_api.nnodes import frozen_nnodes
from elastic_api.parse import parse_spec
from elastic_operator.build.pod import build_pod
from elastic_operator.build.request import BuildSettings
from elastic_operator.plan.facts.decisions import NewPods, Slot
from elastic_worker.contract import MASTER_PORT
from tests.api.jobs import make_template

SERVICE_IP = "10.96.7.7"
UID = "5f0c9c0e-9f5c-4c8e-a7c5-2f1b6d1f0a11"


@dataclass(frozen=True)
class Owner:
    namespace: str = "team-a"
    name: str = "toy"
    uid: str = UID


def make_spec(template: dict[str, Any] | None = None, *, min_: int = 2, max_: int = 4, **fields: Any) -> JobSpec:
    body = {"minReplicas": min_, "maxReplicas": max_, "template": template or make_template(), **fields}
    return parse_spec({"spec": body})


def make_pod(
    spec: JobSpec | None = None,
    *,
    role: str = "worker",
    index: int = 0,
    node: str | None = "node-a",
    incarnation: int = 1,
    nnodes: tuple[int, int] | None = None,
    service_ip: str = SERVICE_IP,
    settings: BuildSettings | None = None,
    master_epoch: int = 0,
    membership: str = "",
    own_class: bool = False,
    port: int = MASTER_PORT,
) -> dict[str, Any]:
    spec = spec or make_spec()
    slot = Slot(role, index, node, True)
    new = NewPods((slot,), incarnation, nnodes or frozen_nnodes(spec), master_epoch, membership, own_class=own_class)
    return build_pod(Owner(), spec, new, slot, service_ip=service_ip, settings=settings or BuildSettings(), port=port)


def make_main(container: dict[str, Any] | None = None, **how: Any) -> dict[str, Any]:
    """The main container of the pod of a job whose template has this one container."""
    return make_pod(make_spec(make_template(*filter(None, [container]))), **how)["spec"]["containers"][0]


def env_of(pod: dict[str, Any]) -> dict[str, str]:
    """The plain variables of the first container."""
    return {
        variable["name"]: variable["value"] for variable in pod["spec"]["containers"][0]["env"] if "value" in variable
    }
