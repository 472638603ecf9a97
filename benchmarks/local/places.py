"""The place of a local pod in its job, and the operator's variables for such a pod, from the operator's code.

The values that the kubelet fills in on a cluster (the pod's address and uid, the token) are added here.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_api.job import JobSpec
from elastic_api.parse import parse_spec
from elastic_api.pod_names import pod_name
from elastic_operator.build import elastic_pod, torchrun_environment
from elastic_operator.build.request import BuildSettings
from elastic_operator.plan.facts.decisions import NewPods, Slot
from elastic_worker import contract

LAUNCHER = Path(contract.__file__).with_name("__main__.py")
HERE = "127.0.0.1"
NAME, UID = "toy", "local"
"""The job's name."""
MEMBERSHIP = "membership"
GRACE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Place:
    """One pod: 0 is the master. `fewest` and `most` count pods, `processes` the processes of the pod.

    All pods of a job share `folder` and `port`. `epoch` counts masters, `incarnation` starts of the whole job.
    """

    folder: Path
    index: int
    uid: str
    port: int
    status_port: int
    fewest: int
    most: int
    epoch: int = 1
    incarnation: int = 1
    processes: int = 1

    @property
    def role(self) -> str:
        """Master or worker."""
        return contract.ROLE_WORKER if self.index else contract.ROLE_MASTER

    @property
    def number(self) -> int:
        """The pod's index among the pods of its role."""
        return max(0, self.index - 1)

    @property
    def name(self) -> str:
        """The pod's name, as the operator gives it."""
        return pod_name(NAME, self.role, self.number)


def torchrun_variables(place: Place, *, service_ip: str = HERE) -> dict[str, str]:
    """The variables of a pod in Torchrun mode, without PET_LOCAL_ADDR, which the kubelet knows."""
    settings = BuildSettings(gpu_resources=())
    variables = torchrun_environment.environment(
        _Owner(), _spec(place), *_create(place), service_ip=service_ip, port=place.port, settings=settings
    )
    return _values(variables)


def launcher_variables(place: Place, *, checkpoint: Path | None) -> dict[str, str]:
    """The variables of a pod in Elastic mode. `checkpoint` is the path to which a script without the library saves."""
    watched = {"checkpointPath": str(checkpoint)} if checkpoint else {}
    spec = _spec(place, runtime={"mode": "Elastic"}, elasticity={"gracePeriodSeconds": GRACE_SECONDS, **watched})
    told = elastic_pod.environment(
        _Owner(), spec, *_create(place), service_ip=HERE, port=place.port, settings=BuildSettings()
    )
    return {
        **_values(told),
        contract.ENV_LOCAL_ADDR: HERE,
        contract.ENV_POD_UID: place.uid,
        contract.ENV_TOKEN: "known to this job only",
        contract.ENV_MEMBERSHIP_FILE: str(place.folder / MEMBERSHIP),
        contract.ENV_STATUS_PORT: str(place.status_port),
        "TMPDIR": str(place.folder),
    }


def _create(place: Place) -> tuple[NewPods, Slot]:
    slot = Slot(place.role, place.number, None, ready=True)
    return NewPods((slot,), place.incarnation, (place.fewest, place.most), place.epoch), slot


def write_membership(places: Iterable[Place], *, number: int) -> None:
    """Write the membership for the master: the pods that take part. The one with the higher number counts."""
    named = list(places)
    first = named[0]
    members = [{"name": place.name, "uid": place.uid} for place in named]
    told = {"wish": number, "members": members, "min": first.fewest, "max": first.most}
    unfinished = first.folder / f"{MEMBERSHIP}.tmp"
    unfinished.write_text(json.dumps(told))
    unfinished.replace(first.folder / MEMBERSHIP)


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])


def _spec(place: Place, **more: Any) -> JobSpec:
    container = {"name": contract.MAIN_CONTAINER, "image": "toy", "args": ["train.py"]}
    sizes = {"minReplicas": place.fewest, "maxReplicas": place.most, "nprocPerNode": place.processes}
    return parse_spec({"spec": {**sizes, "template": {"spec": {"containers": [container]}}, **more}})


def _values(variables: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in variables if "value" in variable}


@dataclass(frozen=True, slots=True)
class _Owner:
    namespace: str = "local"
    name: str = NAME
    uid: str = UID
