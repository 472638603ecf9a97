"""The operator's additions to the pods of Elastic jobs, by name, and the parts that their templates therefore must not
contain.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from elastic_api.invalid import FieldError, Path
from elastic_api.job import JobSpec
from elastic_api.template import main_container
from elastic_worker import contract

INJECT_CONTAINER = "elastic-pytorch-inject"
"""The init container that copies the launcher."""
RUNTIME_VOLUME = "elastic-runtime"
"""The volume that it copies the launcher into."""
MEMBERSHIP_VOLUME = "elastic-wish"
"""The volume in which the master finds the members of the group."""
SCRATCH_VOLUME = "elastic-scratch"
"""A folder for temporary files if the container's file system is read-only."""
SCRATCH_FOLDER = "/var/run/elastic-pytorch"

RESERVED_ENV = frozenset(
    {
        contract.ENV_JOB_NAME,
        contract.ENV_JOB_UID,
        contract.ENV_ROLE,
        contract.ENV_INDEX,
        contract.ENV_INCARNATION,
        contract.ENV_POD_NAME,
        contract.ENV_POD_UID,
        contract.ENV_MASTER_EPOCH,
        contract.ENV_TOKEN,
        contract.ENV_NPROC,
        contract.ENV_PRELOAD,
        contract.ENV_CHECKPOINT_PATH,
        contract.ENV_CHECKPOINT_COMPLETE,
        contract.ENV_CHECKPOINT_SIGNAL,
        contract.ENV_ALIGN_SECONDS,
        contract.ENV_GRACE_SECONDS,
        contract.ENV_STALL_SECONDS,
        contract.ENV_MAX_FAILURES,
        contract.ENV_FINAL_EXIT_CODES,
        contract.ENV_MEMBERSHIP_FILE,
        contract.ENV_STATUS_PORT,
        contract.ENV_GENERATION,
        contract.ENV_SAVE_FILE,
    }
)
"""Users may set ELASTIC_WARM and ELASTIC_COUNT_STEPS."""

_SETTING_OF = {
    contract.ENV_NPROC: "spec.nprocPerNode",
    contract.ENV_PRELOAD: "spec.runtime.preload",
    contract.ENV_CHECKPOINT_PATH: "spec.elasticity.checkpointPath",
    contract.ENV_CHECKPOINT_COMPLETE: "spec.elasticity.checkpointComplete",
    contract.ENV_CHECKPOINT_SIGNAL: "spec.elasticity.checkpointSignal",
    contract.ENV_ALIGN_SECONDS: "spec.elasticity.alignTimeoutSeconds",
    contract.ENV_GRACE_SECONDS: "spec.elasticity.gracePeriodSeconds",
    contract.ENV_STALL_SECONDS: "spec.recovery.stallSeconds",
    contract.ENV_MAX_FAILURES: "spec.recovery.maxFailuresWithoutProgress",
    contract.ENV_FINAL_EXIT_CODES: "spec.recovery.finalExitCodes",
}
OURS = "must be different: in Elastic mode the operator adds one of that name"
SET_BY_US = "must not be set here, {instead}: in Elastic mode the operator sets it"
OUR_FOLDER = "must be another folder: in Elastic mode the operator mounts its own there"
OUR_VOLUMES = (RUNTIME_VOLUME, MEMBERSHIP_VOLUME, SCRATCH_VOLUME)
OUR_FOLDERS = (contract.INJECT_FOLDER, contract.MEMBERSHIP_FOLDER, SCRATCH_FOLDER)


def instead_of(variable: str) -> str:
    """The alternative to setting this reserved variable."""
    setting = _SETTING_OF.get(variable)
    return f"write {setting} instead" if setting else "remove it"


def injector(image: str) -> dict[str, Any]:
    """The init container, which copies the launcher out of its image. It needs no right at all for that."""
    return {
        "name": INJECT_CONTAINER,
        "image": image,
        "command": ["python3", "-m", "elastic_worker.inject", contract.INJECT_FOLDER],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}},
        "securityContext": {
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": RUNTIME_VOLUME, "mountPath": contract.INJECT_FOLDER}],
    }


def requested_template(spec: JobSpec, role: str) -> dict[str, Any]:
    """The template of `role` as the scheduler sees it in a pod: with the init container that is added."""
    template = spec.template_of(role)
    if not (spec.is_elastic and spec.runtime.inject):
        return template
    pod = template["spec"]
    return {**template, "spec": {**pod, "initContainers": [injector(""), *(pod.get("initContainers") or [])]}}


def elastic_errors(template: Mapping[str, Any], *, at: Path) -> Iterator[FieldError]:
    """Parts of this template, at the path `at`, that conflict with the additions to its pods."""
    pod, pod_at = template["spec"], (*at, "spec")
    for index, volume in enumerate(pod.get("volumes") or ()):
        if volume["name"] in OUR_VOLUMES:
            yield FieldError((*pod_at, "volumes", index, "name"), OURS, volume["name"])
    for field in ("containers", "initContainers"):
        for index, container in enumerate(pod.get(field) or ()):
            if container["name"] == INJECT_CONTAINER:
                yield FieldError((*pod_at, field, index, "name"), OURS, container["name"])
    main = main_container(template)
    yield from _main_errors(main, at=(*pod_at, "containers", pod["containers"].index(main)))


def _main_errors(main: Mapping[str, Any], *, at: Path) -> Iterator[FieldError]:
    for index, variable in enumerate(main.get("env") or ()):
        if variable["name"] in RESERVED_ENV:
            text = SET_BY_US.format(instead=instead_of(variable["name"]))
            yield FieldError((*at, "env", index, "name"), text, variable["name"])
    for index, mount in enumerate(main.get("volumeMounts") or ()):
        if posixpath.normpath(mount["mountPath"]) in OUR_FOLDERS:
            yield FieldError((*at, "volumeMounts", index, "mountPath"), OUR_FOLDER, mount["mountPath"])
