"""The roles of a PyTorchJob: how many pods each has, and their templates as an ElasticPyTorchJob may have them.

Parts of a template that the operator does not accept are removed, and the main container's command is written in the
operator's form. Each change is a line of the report.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from elastic_api.invalid import InvalidSpecError, Path, field_errors
from elastic_api.pod_types import PodTemplate
from elastic_api.template import main_container
from elastic_api.template_rules import POINTS_AT_MASTER, RESERVED_BECAUSE
from elastic_client.convert import manifest
from elastic_client.convert.converted import ConvertError, Report, Source
from elastic_client.convert.launch import ADDED, TORCHRUN, Program, program_of
from elastic_worker import contract

MASTER, WORKER = "Master", "Worker"
ROLES = (MASTER, WORKER)
KUEUE = "kueue.x-k8s.io/"
OF_THE_OBJECT = "it belongs to the old object, and the cluster sets it again"
QUOTA = "a GPUQuotaPolicy says what a namespace may use (docs/quotas.md)"
REPLACES = "the operator itself replaces pods that fail, so a pod is never restarted in place"
RANK = "RANK"


@dataclass(frozen=True, slots=True)
class Role:
    """The pods of one role: how many, and their template as it is written in the new job."""

    name: str
    replicas: int
    template: dict[str, Any]
    program: Program

    @property
    def at(self) -> Path:
        """The path of its template in the PyTorchJob."""
        return ("spec", "pytorchReplicaSpecs", self.name, "template")


def read_roles(source: Source, report: Report, entrypoint: Sequence[str]) -> list[Role]:
    """The roles of a PyTorchJob, the master first. Raises ConvertError."""
    found = [name for name in ROLES if isinstance(source.peek("spec", "pytorchReplicaSpecs", name), Mapping)]
    if not found:
        raise ConvertError("spec.pytorchReplicaSpecs: must have Master or Worker")
    if found == [*ROLES] and _is_empty(source):
        found.remove(WORKER)
        path = ("spec", "pytorchReplicaSpecs", WORKER)
        source.take(*path)
        report.lose((*path, "replicas"), "the job is its master alone, and the workers' template is not used", 0)
    return [_role(name, source, report, entrypoint) for name in found]


def _is_empty(source: Source) -> bool:
    """Whether there are no workers, although there is a template for them."""
    replicas = source.peek("spec", "pytorchReplicaSpecs", WORKER, "replicas")
    return replicas == 0 and not isinstance(replicas, bool) and source.peek("spec", "elasticPolicy") is None


def _role(name: str, source: Source, report: Report, entrypoint: Sequence[str]) -> Role:
    at: Path = ("spec", "pytorchReplicaSpecs", name)
    _restart_policy(at, source, report)
    template = deepcopy(source.take(*at, "template"))
    place = (*at, "template")
    _check_shape(template, place)
    _clean(template, place, report)
    program = _run(template, place, report, entrypoint)
    replicas = source.take(*at, "replicas")
    return Role(name, 1 if replicas is None else count(replicas, (*at, "replicas")), template, program)


def _check_shape(template: object, at: Path) -> None:
    """Raise ConvertError, in the operator's words, for an invalid template of a pod."""
    if not isinstance(template, dict):
        raise ConvertError(f"{dotted(at)}: must be the template of a pod, with a spec")
    try:
        PodTemplate.model_validate(template)
    except ValidationError as error:
        raise ConvertError(str(InvalidSpecError(field_errors(error, at=at)))) from None


def _restart_policy(at: Path, source: Source, report: Report) -> None:
    path = (*at, "restartPolicy")
    policy = source.take(*path)
    if policy == "ExitCode":
        report.lose(
            path,
            "write the exit codes that another try would not help into spec.recovery.finalExitCodes; a PyTorchJob"
            " ends at each from 1 to 127",
            policy,
        )
    elif policy == "Never":
        report.lose(path, f"{REPLACES}; spec.recovery.maxFailuresWithoutProgress: 0 ends the job at a failure", policy)
    elif policy is not None:
        report.lose(path, REPLACES, policy)


def _clean(template: dict[str, Any], at: Path, report: Report) -> None:
    """Remove the parts that the operator does not accept in a template."""
    pod = template["spec"]
    if pod.get("restartPolicy") not in (None, "Never"):
        report.lose((*at, "spec", "restartPolicy"), REPLACES, pod.pop("restartPolicy"))
    metadata = template.get("metadata")
    if isinstance(metadata, dict):
        for field in ("labels", "annotations"):
            if isinstance(metadata.get(field), Mapping):
                metadata[field] = without_kueue(metadata[field], (*at, "metadata", field), report)


def _run(template: dict[str, Any], at: Path, report: Report, entrypoint: Sequence[str]) -> Program:
    """Write the main container's command in the operator's form."""
    containers = template["spec"].get("containers")
    main = main_container(template)
    place = (*at, "spec", "containers", containers.index(main))
    _drop_reserved(main, place, report)
    words = [*(main.get("command") or []), *(main.get("args") or [])]
    if not main.get("command"):
        if not entrypoint:
            raise ConvertError(
                f"{dotted(place)}.command: is absent, so the image's own runs{_before(words)}: say what that is, such"
                " as --entrypoint 'python /app/train.py'"
            )
        report.note(f"The image's own command is taken to be `{shlex.join(entrypoint)}`.")
        words = [*entrypoint, *words]
    program = program_of(words)
    program.name_dropped(report, dotted((*place, "command")))
    if words != [*program.command, *program.args]:
        text = shlex.join([*program.command, *program.args])
        is_added = not program.command and program.args[0] != TORCHRUN
        report.keep(
            (*place, "command"), f"{'command' if program.command else 'args'}: {text}{f'; {ADDED}' if is_added else ''}"
        )
    containers[containers.index(main)] = {
        "name": main.get("name"),
        "image": main.get("image"),
        **{key: list(part) for key, part in (("command", program.command), ("args", program.args)) if part},
        **{key: value for key, value in main.items() if key not in ("name", "image", "command", "args")},
    }
    return program


def _before(words: Sequence[str]) -> str:
    return f" with {shlex.join(words)}" if words else ""


def _drop_reserved(main: dict[str, Any], at: Path, report: Report) -> None:
    kept = []
    for index, variable in enumerate(main.get("env") or []):
        name = str(variable.get("name", ""))
        if name in contract.RESERVED_ENV or name.startswith(contract.RESERVED_ENV_PREFIX):
            reason = RESERVED_BECAUSE.get(name, POINTS_AT_MASTER)
            report.lose((*at, "env", index), f"{name}: the operator sets it, since {reason}")
        else:
            kept.append(variable)
    if "env" in main:
        main["env"] = kept


def with_rank(role: Role, source: Source, report: Report, fewest: int, most: int) -> Role:
    """The role, its command given the RANK of its pod, as in the PyTorchJob, where the job has one size."""
    has_rank = source.peek("spec", "pytorchReplicaSpecs", MASTER) is not None
    if not (has_rank and role.program.command) or most == 1:
        return role
    if fewest < most:
        report.lose((*role.at, "env"), f"{RANK}: pods of a job that changes its size have no rank of their own")
        return role
    main = main_container(role.template)
    if any(variable.get("name") == RANK for variable in (main.get("env") or [])):
        return role
    main["env"] = [{"name": RANK, "value": f"$({contract.ENV_POD_RANK})"}, *(main.get("env") or [])]
    report.keep((*role.at, "env"), f"{RANK}: $({contract.ENV_POD_RANK}), the pod's, as the training-operator sets it")
    return role


def without_kueue(labels: Mapping[str, Any], at: Path, report: Report) -> dict[str, Any]:
    """Labels or annotations without Kueue's, which would have another meaning here."""
    kept = {}
    for name, value in ((str(name), value) for name, value in labels.items()):
        if name.startswith(KUEUE):
            report.lose((*at, name), f"Kueue does not manage these jobs; {QUOTA}", value)
        elif name == manifest.LAST_APPLIED:
            report.lose((*at, name), OF_THE_OBJECT)
        else:
            kept[name] = value
    return kept


def count(value: object, path: Path) -> int:
    """A number of pods or processes. Raises ConvertError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConvertError(f"{dotted(path)}: {value!r}: must be a whole number, at least 1")
    return value


def dotted(path: Path) -> str:
    """A path in dotted form."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
