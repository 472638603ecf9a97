"""The rules of a job's pod templates that CEL cannot check, because a template is opaque to the API server.

Takes templates that fit `pod_shape.py`. Other checks (a label's syntax, a volume's source) are left to the API server:
it refuses the pod, and the refusal becomes the job's condition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elastic_api.invalid import FieldError, Path
from elastic_api.job import MAX_PROCESSES, JobSpec
from elastic_api.quantity import MAX, milli, units
from elastic_api.template import gpus_of, main_container
from elastic_worker import contract

RESERVED_BECAUSE = {
    contract.ENV_WORLD_SIZE: "the job's size is minReplicas and maxReplicas",
    contract.ENV_NNODES: "the job's size is minReplicas and maxReplicas",
    contract.ENV_LOCAL_ADDR: "it is each pod's own address",
    "PET_NODE_RANK": "ranks are given when the pods meet",
    "PET_STANDALONE": "each pod would train alone",
}
BUILT_IN_RESOURCES = ("cpu", "memory", "ephemeral-storage")
POINTS_AT_MASTER = "it is how the pods find their master"

RESTARTS = "must be Never or absent: the operator itself replaces pods that fail"
NAME_TWICE = "must be different from the other containers' names"
NO_PROGRAM = "must be the script and its arguments (as in [train.py, --lr, '0.1']), or command the program to run"
RESERVED = "must not be set here, remove it: the operator sets it, because {reason}"
UNKNOWN_RESOURCE = (
    f"must be one of {', '.join(BUILT_IN_RESOURCES)}, hugepages-SIZE, or a name with a domain, such as nvidia.com/gpu"
)
NO_GPUS = (
    "must ask for GPUs: the master trains too, and the workers have {gpus} each; write resources.limits with {resource}"
    " in its main container"
)
NO_GPU_LIMIT = "must stand in limits: GPUs are never shared or overcommitted"

ONLY_IN_CONTAINERS = (
    "must stand in the resources of a container, remove it here: a pod as a whole has cpu, memory and hugepages only"
)

Located = tuple[Path, Mapping[str, Any]]


def template_errors(template: Mapping[str, Any], *, at: Path, gpu_resources: Sequence[str]) -> Iterator[FieldError]:
    """The mistakes in the template at the path `at`."""
    pod = template["spec"]
    policy = pod.get("restartPolicy")
    if policy not in (None, "Never"):
        yield FieldError((*at, "spec", "restartPolicy"), RESTARTS, policy)
    containers = list(_containers(pod, at=(*at, "spec")))
    yield from _duplicates(containers)
    for path, container in containers:
        yield from _resource_errors(container, at=path)
        yield from _gpu_errors(container, at=path, gpu_resources=gpu_resources)
    yield from _pod_resource_errors(pod, at=(*at, "spec"))
    main = main_container(template)
    path = next(path for path, container in containers if container is main)
    yield from _program_errors(main, at=path)
    yield from _reserved_variables(main, at=path)


def role_errors(spec: JobSpec, *, gpu_resources: Sequence[str]) -> Iterator[FieldError]:
    """Contradictions between the master's and the workers' templates."""
    master, worker = (
        gpus_of(spec.template_of(role), gpu_resources) for role in (contract.ROLE_MASTER, contract.ROLE_WORKER)
    )
    if worker and not master:
        path: Path = ("spec", "master", "template") if spec.master else ("spec", "template")
        yield FieldError(path, NO_GPUS.format(gpus=worker, resource=gpu_resources[0]))


def _containers(pod: Mapping[str, Any], *, at: Path) -> Iterator[Located]:
    for field in ("containers", "initContainers"):
        for index, container in enumerate(pod.get(field) or ()):
            yield (*at, field, index), container


def _duplicates(containers: Sequence[Located]) -> Iterator[FieldError]:
    seen: Counter[str] = Counter()
    for path, container in containers:
        name = container["name"]
        seen[name] += 1
        if seen[name] == 2:
            yield FieldError((*path, "name"), NAME_TWICE, name)


def _program_errors(main: Mapping[str, Any], *, at: Path) -> Iterator[FieldError]:
    if not main.get("args") and not main.get("command"):
        yield FieldError((*at, "args"), NO_PROGRAM)


def _reserved_variables(main: Mapping[str, Any], *, at: Path) -> Iterator[FieldError]:
    for index, variable in enumerate(main.get("env") or ()):
        name = variable["name"]
        if name in contract.RESERVED_ENV or name.startswith(contract.RESERVED_ENV_PREFIX):
            reason = RESERVED_BECAUSE.get(name, POINTS_AT_MASTER)
            yield FieldError((*at, "env", index, "name"), RESERVED.format(reason=reason), name)


def _resource_errors(container: Mapping[str, Any], *, at: Path) -> Iterator[FieldError]:
    """Errors for names and amounts that no node can ever have: the job would wait for such a node for ever."""
    for kind, quantities in (container.get("resources") or {}).items():
        for name, quantity in quantities.items() if kind in ("limits", "requests") and quantities else ():
            path = (*at, "resources", kind, name)
            if "/" in name:
                if milli(quantity) < MAX and milli(quantity) % 1000:
                    yield FieldError(path, "must be a whole number", quantity)
            elif name not in BUILT_IN_RESOURCES and not name.startswith("hugepages-"):
                yield FieldError(path, UNKNOWN_RESOURCE, quantity)


def _pod_resource_errors(pod: Mapping[str, Any], *, at: Path) -> Iterator[FieldError]:
    """Mistakes in the resources of the pod as a whole, which would replace those of its containers, GPUs included."""
    resources = pod.get("resources") or {}
    for kind in ("limits", "requests"):
        for name, quantity in (resources.get(kind) or {}).items():
            if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
                yield FieldError((*at, "resources", kind, name), ONLY_IN_CONTAINERS, quantity)


def _gpu_errors(container: Mapping[str, Any], *, at: Path, gpu_resources: Sequence[str]) -> Iterator[FieldError]:
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name in gpu_resources:
        if name in limits and units(limits[name]) > MAX_PROCESSES:
            remedy = f"must be at most {MAX_PROCESSES}: it counts the GPUs of one pod"
            yield FieldError((*at, "resources", "limits", name), remedy, limits[name])
        if name in requests and name not in limits:
            yield FieldError((*at, "resources", "requests", name), NO_GPU_LIMIT, requests[name])
        elif name in requests and milli(requests[name]) != milli(limits[name]):
            remedy = f"must equal the limit, {limits[name]}; or remove the request"
            yield FieldError((*at, "resources", "requests", name), remedy, requests[name])
