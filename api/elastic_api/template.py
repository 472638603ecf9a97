"""Reads a user's pod template: the main container, the GPUs, the processes per pod.

Everything here takes templates that `parse.py` has accepted; on others it may raise.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from elastic_api.job import JobSpec
from elastic_api.quantity import amount
from elastic_worker.contract import MAIN_CONTAINER

GPU_RESOURCES = ("nvidia.com/gpu",)
"""Extended resources that count as GPUs, unless the operator's settings name others."""


def main_container(template: Mapping[str, Any]) -> dict[str, Any]:
    """The container that trains: the one called `pytorch`, else the first."""
    containers: list[dict[str, Any]] = template["spec"]["containers"]
    return next((c for c in containers if c.get("name") == MAIN_CONTAINER), containers[0])


def container_requests(container: Mapping[str, Any]) -> Counter[str]:
    """The requests of a container (or of a pod's own `resources`); its limits count where it has no requests."""
    return Counter(_requests(container))


def _requests(part: Mapping[str, Any]) -> dict[str, int]:
    resources = part.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount(name, quantity) for name, quantity in requests.items()}


def requests_of(template: Mapping[str, Any]) -> dict[str, int]:
    """The requests of a pod of this template, by resource: milli-cores of cpu, whole units of all else.

    As kube-scheduler counts: containers and sidecars (init containers that restart always) add up, the other init
    containers run one after another beside the sidecars started before them; a pod-level request replaces the sum;
    the overhead comes on top. See the function PodRequests in k8s.io/component-helpers/resource.
    """
    pod = template["spec"]
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in pod.get("initContainers") or []:
        together = dict(sidecars)
        _add(together, _requests(container))
        for name, value in together.items():
            starting[name] = max(starting.get(name, 0), value)
        if container.get("restartPolicy") == "Always":
            sidecars = together
    own = sidecars
    for container in pod["containers"]:
        _add(own, _requests(container))
    for name, value in starting.items():
        own[name] = max(own.get(name, 0), value)
    own.update(_requests(pod))
    for name, quantity in (pod.get("overhead") or {}).items():
        own[name] = own.get(name, 0) + amount(name, quantity)
    return {name: value for name, value in own.items() if value}


def _add(total: dict[str, int], requests: Mapping[str, int]) -> None:
    """Add the requests to the total. Plain dicts, because a new leader counts tens of thousands of pods at once."""
    for name, value in requests.items():
        total[name] = max(total.get(name, 0) + value, 0)


def limits_of(template: Mapping[str, Any]) -> dict[str, int]:
    """The limits of a pod of this template, by resource, as far as its containers have limits; counted alike."""
    pod = template["spec"]
    limited = {field: [_limits(one) for one in pod.get(field) or []] for field in ("containers", "initContainers")}
    return requests_of({"spec": {**_limits(pod), **limited}})


def _limits(part: Mapping[str, Any]) -> dict[str, Any]:
    limits = (part.get("resources") or {}).get("limits") or {}
    return {"restartPolicy": part.get("restartPolicy"), "resources": {"limits": limits}}


def gpus_of(template: Mapping[str, Any], resources: Sequence[str] = GPU_RESOURCES) -> int:
    """GPUs that a pod of this template holds, over all its containers."""
    requests = requests_of(template)
    return sum(requests.get(name, 0) for name in resources)


def main_gpus_of(template: Mapping[str, Any], resources: Sequence[str] = GPU_RESOURCES) -> int:
    """GPUs of the main container alone, which its training processes can use."""
    requests = container_requests(main_container(template))
    return sum(requests[name] for name in resources)


def fingerprint(spec: JobSpec, role: str) -> str:
    """A hash of everything that may change only while a job is suspended, for pods of `role`: equal for equal
    content.
    """
    # Defaults are left out, so that a field which a later release adds changes no fingerprint.
    runtime = {"mode": spec.runtime.mode, **spec.runtime.model_dump(mode="json", exclude_defaults=True)}
    content = [spec.template_of(role), spec.nproc_per_node, runtime]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def nproc_of(spec: JobSpec, role: str, resources: Sequence[str] = GPU_RESOURCES) -> int:
    """Training processes in a pod of `role` ("master" or "worker"): as written, else one per GPU, at least one."""
    if spec.nproc_per_node != "auto":
        return spec.nproc_per_node
    return max(1, main_gpus_of(spec.template_of(role), resources))
