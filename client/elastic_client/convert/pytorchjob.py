"""From a PyTorchJob of the training-operator (`kubeflow.org/v1`) to an ElasticPyTorchJob.

The templates of Master and Worker stay, as one where they are equal. What is run becomes `args` where it is torchrun or
python with a script, so that it can change its size; any other command stays, and in a job of one size it is given the
`RANK` of its pod, as the training-operator does. docs/from-pytorchjob.md has the table of fields.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from elastic_api.invalid import InvalidSpecError, Path, field_errors
from elastic_api.pod_types import PodTemplate
from elastic_api.template import main_container, main_gpus_of
from elastic_api.template_rules import POINTS_AT_MASTER, RESERVED_BECAUSE
from elastic_client.convert import manifest
from elastic_client.convert.converted import Converted, ConvertError, Report, Source
from elastic_client.convert.launch import ADDED, TORCHRUN, Program, program_of
from elastic_worker import contract

API_VERSION, KIND = "kubeflow.org/v1", "PyTorchJob"
MASTER, WORKER = "Master", "Worker"
ROLES = (MASTER, WORKER)
KUEUE = "kueue.x-k8s.io/"
OF_THE_OBJECT = "it is the old object's, and the cluster writes it anew"
QUOTA = "a GPUQuotaPolicy says what a namespace may use (docs/quotas.md)"
RENDEZVOUS = "the operator sets the job's rendezvous, by c10d"
REPLACES = "the operator itself replaces pods that fail, so a pod is never restarted in place"
RANK = "RANK"
SAME_IN_RUN_POLICY = ("activeDeadlineSeconds", "ttlSecondsAfterFinished", "cleanPodPolicy", "suspend")
NOT_KEPT: dict[Path, str] = {
    ("spec", "elasticPolicy", "standalone"): "each pod would train alone",
    ("spec", "elasticPolicy", "metrics"): "the job grows into idle GPUs by itself; an autoscaler may move maxReplicas"
    " by the scale subresource",
    ("spec", "runPolicy", "managedBy"): "only the operator manages these jobs",
    ("spec", "runPolicy", "schedulingPolicy", "queue"): QUOTA,
    ("spec", "runPolicy", "schedulingPolicy", "minResources"): "the operator reserves what the fewest pods ask for",
    ("spec", "runPolicy", "schedulingPolicy", "scheduleTimeoutSeconds"): "a queued job waits until it fits",
    ("status",): OF_THE_OBJECT,
    **{
        ("spec", "elasticPolicy", field): RENDEZVOUS
        for field in ("rdzvBackend", "rdzvHost", "rdzvPort", "rdzvId", "rdzvConf")
    },
}


@dataclass(frozen=True, slots=True)
class Role:
    """The pods of one role: how many, and their template as it is written in the new job."""

    name: str
    replicas: int
    template: dict[str, Any]
    program: Program

    @property
    def at(self) -> Path:
        """Where its template stands in the PyTorchJob."""
        return ("spec", "pytorchReplicaSpecs", self.name, "template")


def from_pytorchjob(body: Mapping[str, Any], *, entrypoint: Sequence[str] = ()) -> Converted:
    """The job that `body`, a PyTorchJob as decoded from YAML, describes.

    Args:
        body: The whole object.
        entrypoint: What the image runs before the container's `args` where there is no `command`: its ENTRYPOINT, and
            its CMD where there are no args either. A converter does not read images.

    Raises:
        ConvertError: it is no PyTorchJob, has neither role, says nowhere what runs, or describes a job that the
            operator does not accept.
    """
    if body.get("apiVersion") != API_VERSION or body.get("kind") != KIND:
        found = f"{body.get('apiVersion')} {body.get('kind')}"
        raise ConvertError(f"kind: {found}: must be {API_VERSION} {KIND}; other kinds are not converted")
    source, report = Source(_with_role_names(body)), Report()
    source.take("apiVersion"), source.take("kind")
    metadata = _metadata(source, report)
    roles = _roles(source, report, entrypoint)
    fewest, most = _sizes(source, report, roles)
    report.note(manifest.counted(fewest, most))
    spec: dict[str, Any] = {
        **manifest.sizes(fewest, most),
        "nprocPerNode": _nproc(source, report, roles),
        **_templates([_with_rank(role, source, report, fewest, most) for role in roles]),
        "priorityClassName": _renamed(source, report, "schedulingPolicy", "priorityClass", "spec.priorityClassName"),
        "recovery": _recovery(source, report) or None,
        **{field: source.take("spec", "runPolicy", field) for field in SAME_IN_RUN_POLICY},
    }
    for path, reason in NOT_KEPT.items():
        if source.take(*path) is not None:
            report.lose(path, reason, source.peek(*path))
    report.lose_unread(source)
    return report.converted(manifest.job(metadata, spec))


def _with_role_names(body: Mapping[str, Any]) -> dict[str, Any]:
    """The job with `Master` and `Worker` so written; the training-operator takes other cases, too."""
    spec = _mapping(body, "spec")
    _mapping(body, "metadata")
    roles = _mapping(spec, "pytorchReplicaSpecs", at="spec.")
    named = {name.capitalize() if name.capitalize() in ROLES else name: role for name, role in roles.items()}
    return {**body, "spec": {**spec, "pytorchReplicaSpecs": named}}


def _mapping(parent: Mapping[str, Any], key: str, *, at: str = "") -> dict[str, Any]:
    value = parent.get(key)
    if not isinstance(value, Mapping) or not value:
        raise ConvertError(f"{at}{key}: must be a mapping, as in a PyTorchJob")
    return {str(name): child for name, child in value.items()}


def _metadata(source: Source, report: Report) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for field in manifest.KEPT_METADATA:
        value = source.take("metadata", field)
        if isinstance(value, Mapping):
            value = _without_kueue(value, ("metadata", field), report)
        if value:
            kept[field] = value
    for field in source.peek("metadata") or {}:
        if field not in manifest.KEPT_METADATA:
            report.lose(("metadata", field), OF_THE_OBJECT, source.take("metadata", field))
    return kept


def _without_kueue(labels: Mapping[str, Any], at: Path, report: Report) -> dict[str, Any]:
    """Labels or annotations without those that would have meant another thing than they say."""
    kept = {}
    for name, value in ((str(name), value) for name, value in labels.items()):
        if name.startswith(KUEUE):
            report.lose((*at, name), f"Kueue does not manage these jobs; {QUOTA}", value)
        elif name == manifest.LAST_APPLIED:
            report.lose((*at, name), OF_THE_OBJECT)
        else:
            kept[name] = value
    return kept


def _roles(source: Source, report: Report, entrypoint: Sequence[str]) -> list[Role]:
    found = [name for name in ROLES if isinstance(source.peek("spec", "pytorchReplicaSpecs", name), Mapping)]
    if not found:
        raise ConvertError("spec.pytorchReplicaSpecs: must have Master or Worker")
    return [_role(name, source, report, entrypoint) for name in found]


def _role(name: str, source: Source, report: Report, entrypoint: Sequence[str]) -> Role:
    at: Path = ("spec", "pytorchReplicaSpecs", name)
    _restart_policy(at, source, report)
    template = deepcopy(source.take(*at, "template"))
    place = (*at, "template")
    _check_shape(template, place)
    _clean(template, place, report)
    program = _run(template, place, report, entrypoint)
    replicas = source.take(*at, "replicas")
    return Role(name, 1 if replicas is None else _count(replicas, (*at, "replicas")), template, program)


def _check_shape(template: object, at: Path) -> None:
    """Raises ConvertError, in the operator's words, for what is no template of a pod."""
    if not isinstance(template, dict):
        raise ConvertError(f"{_dotted(at)}: must be the template of a pod, with a spec")
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
    """Take away what the operator does not accept in a template."""
    pod = template["spec"]
    if pod.get("restartPolicy") not in (None, "Never"):
        report.lose((*at, "spec", "restartPolicy"), REPLACES, pod.pop("restartPolicy"))
    metadata = template.get("metadata")
    if isinstance(metadata, dict):
        for field in ("labels", "annotations"):
            if isinstance(metadata.get(field), Mapping):
                metadata[field] = _without_kueue(metadata[field], (*at, "metadata", field), report)


def _run(template: dict[str, Any], at: Path, report: Report, entrypoint: Sequence[str]) -> Program:
    """Write what the main container runs as the operator wants it."""
    containers = template["spec"].get("containers")
    main = main_container(template)
    place = (*at, "spec", "containers", containers.index(main))
    _drop_reserved(main, place, report)
    words = [*(main.get("command") or []), *(main.get("args") or [])]
    if not main.get("command"):
        if not entrypoint:
            raise ConvertError(
                f"{_dotted(place)}.command: is absent, so the image's own runs{_before(words)}: say what that is, such"
                " as --entrypoint 'python /app/train.py'"
            )
        report.note(f"The image's own command is taken to be `{shlex.join(entrypoint)}`.")
        words = [*entrypoint, *words]
    program = program_of(words)
    program.name_dropped(report, _dotted((*place, "command")))
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


def _sizes(source: Source, report: Report, roles: Sequence[Role]) -> tuple[int, int]:
    """The fewest and most pods, master included."""
    total = sum(role.replicas for role in roles)
    elastic = source.peek("spec", "elasticPolicy") is not None
    fewest, most = _elastic_sizes(source, report, roles) if elastic else (total, total)
    path = ("spec", "runPolicy", "schedulingPolicy", "minAvailable")
    gang = source.take(*path)
    if gang is None:
        pass
    elif elastic or not 1 <= _count(gang, path) <= total or not all(role.program.is_torchrun for role in roles):
        report.lose(path, f"the job starts when {fewest} pods fit, spec.minReplicas", gang)
    else:
        fewest = gang
        report.keep(path, f"spec.minReplicas: {gang}: it trains with so few, too", gang)
    for role in roles:
        at = (*role.at[:-1], "replicas")
        if not elastic:
            report.keep(at, f"spec.maxReplicas: {total}, master included", role.replicas)
        elif role.name == WORKER or role.replicas > 1:
            report.lose(at, f"the job takes the pods that are free, {fewest} to {most}", role.replicas)
        else:
            report.keep(at, "the master, one of the job's pods", role.replicas)
    return fewest, most


def _elastic_sizes(source: Source, report: Report, roles: Sequence[Role]) -> tuple[int, int]:
    """As torchrun is told there: each pod counts, a Master's, too. One that is absent is the other one, or Worker's."""
    at: Path = ("spec", "elasticPolicy")
    written = [source.take(*at, field) for field in ("minReplicas", "maxReplicas")]
    default = next((value for value in written if value is not None), roles[-1].replicas)
    fewest, most = (default if value is None else value for value in written)
    fewest, most = _count(fewest, (*at, "minReplicas")), _count(most, (*at, "maxReplicas"))
    if fewest > most:
        raise ConvertError(f"spec.elasticPolicy.maxReplicas: {most}: must be at least minReplicas, {fewest}")
    report.keep((*at, "minReplicas"), f"spec.minReplicas: {fewest}", written[0])
    report.keep((*at, "maxReplicas"), f"spec.maxReplicas: {most}", written[1])
    if len(roles) == 2:
        report.note("elasticPolicy is counted as torchrun counts it there, with the master's pod.")
    return fewest, most


def _nproc(source: Source, report: Report, roles: Sequence[Role]) -> int | str | None:
    """The job's number of processes per pod; None for the default, one per GPU."""
    lines = {role.program.nproc for role in roles}
    if len(lines) > 1:
        raise ConvertError(
            "spec.pytorchReplicaSpecs: Master and Worker have different --nproc-per-node: write the same, or none for"
            " one process per GPU"
        )
    nproc = lines.pop()
    if nproc is None and any(role.program.was_plain for role in roles):
        nproc = 1
        report.note("python without torchrun is one process for each pod there: nprocPerNode: 1.")
    for path in (("spec", "nprocPerNode"), ("spec", "elasticPolicy", "nProcPerNode")):
        written = source.take(*path)
        if written is None:
            continue
        if nproc is not None:
            report.lose(path, f"what the command says counts: {nproc}", written)
        elif str(written) == "cpu":
            report.lose(path, "write the number of processes into spec.nprocPerNode", written)
        else:
            nproc = "auto" if written in ("auto", "gpu") else _count(_number(written), path)
            report.keep(path, f"spec.nprocPerNode: {nproc}", written)
    if isinstance(nproc, int) and all(max(1, main_gpus_of(role.template)) == nproc for role in roles):
        report.note(f"nprocPerNode is auto, its default: one process per GPU is {nproc}, as before.")
        return None
    return None if nproc == "auto" else nproc


def _with_rank(role: Role, source: Source, report: Report, fewest: int, most: int) -> Role:
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


def _templates(roles: Sequence[Role]) -> dict[str, Any]:
    """One template for all pods, and the master's where it differs."""
    common = roles[-1].template
    master = roles[0].template
    return {"template": common, "master": None if master == common else {"template": master}}


def _recovery(source: Source, report: Report) -> dict[str, Any]:
    """Restarts: torchrun's if they are limited, else the training-operator's."""
    found: dict[str, Any] = {}
    for path in (("spec", "elasticPolicy", "maxRestarts"), ("spec", "runPolicy", "backoffLimit")):
        limit = source.take(*path)
        if limit is None:
            continue
        if found:
            report.lose(path, f"spec.recovery.maxRestarts is {found['maxRestarts']} already", limit)
            continue
        found = {"maxRestarts": limit}
        report.keep(path, f"spec.recovery.maxRestarts: {limit}; lost pods and changes of size do not count", limit)
    return found


def _renamed(source: Source, report: Report, group: str, field: str, became: str) -> Any:
    path = ("spec", "runPolicy", group, field)
    value = source.take(*path)
    if value is not None:
        report.keep(path, f"{became}: {value}", value)
    return value


def _number(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _count(value: object, path: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConvertError(f"{_dotted(path)}: {value!r}: must be a whole number, at least 1")
    return value


def _dotted(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]


def from_documents(bodies: Sequence[Mapping[str, Any]], entrypoint: Sequence[str] = ()) -> Iterator[Converted]:
    """Each object of a file: PyTorchJobs as jobs, the others as they are, the items of a List one by one.

    Raises:
        ConvertError: there is no PyTorchJob among them, or one cannot be converted.
    """
    items = [item for body in bodies for item in (body.get("items") or [] if body.get("kind") == "List" else [body])]
    if not any(item.get("kind") == KIND for item in items):
        kinds = ", ".join(str(item.get("kind")) for item in items) or "nothing"
        raise ConvertError(f"kind: {kinds}: must be {KIND}, at least once")
    for item in items:
        if item.get("kind") == KIND:
            yield from_pytorchjob(item, entrypoint=entrypoint)
        else:
            yield Converted(dict(item), notes=(f"{item.get('kind')}: stays as it is.",))
