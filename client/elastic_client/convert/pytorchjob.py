"""From a PyTorchJob of the training-operator (`kubeflow.org/v1`) to an ElasticPyTorchJob.

The templates of Master and Worker are kept, as one if they are equal. Torchrun, or python with a script, becomes
`args`, so that the job can change its size. Any other command is kept, and in a job of one size it gets the `RANK` of
its pod, as from the training-operator. docs/from-pytorchjob.md has the table of fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elastic_api.invalid import Path
from elastic_api.template import main_gpus_of
from elastic_client.convert import manifest
from elastic_client.convert.converted import Converted, ConvertError, Report, Source
from elastic_client.convert.pytorchjob_roles import (
    OF_THE_OBJECT,
    QUOTA,
    ROLES,
    WORKER,
    Role,
    count,
    read_roles,
    with_rank,
    without_kueue,
)

API_VERSION, KIND = "kubeflow.org/v1", "PyTorchJob"
RENDEZVOUS = "the operator sets the job's rendezvous, by c10d"
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


def from_pytorchjob(body: Mapping[str, Any], *, entrypoint: Sequence[str] = ()) -> Converted:
    """The job that `body`, a PyTorchJob as decoded from YAML, describes.

    Args:
        body: The whole object.
        entrypoint: The image's command before the container's `args` if there is no `command`: its ENTRYPOINT, and its
            CMD if there are no args either. A converter does not read images.

    Raises:
        ConvertError: it is no PyTorchJob, has neither role, names no command, or describes a job that the operator does
        not accept.
    """
    if body.get("apiVersion") != API_VERSION or body.get("kind") != KIND:
        found = f"{body.get('apiVersion')} {body.get('kind')}"
        raise ConvertError(f"kind: {found}: must be {API_VERSION} {KIND}; other kinds are not converted")
    source, report = Source(_with_role_names(body)), Report()
    source.take("apiVersion"), source.take("kind")
    metadata = _metadata(source, report)
    roles = read_roles(source, report, entrypoint)
    fewest, most = _sizes(source, report, roles)
    report.note(manifest.counted(fewest, most))
    spec: dict[str, Any] = {
        **manifest.sizes(fewest, most),
        "nprocPerNode": _nproc(source, report, roles),
        **_templates([with_rank(role, source, report, fewest, most) for role in roles]),
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
    """The job with the keys `Master` and `Worker`; the training-operator accepts them in any case."""
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
            value = without_kueue(value, ("metadata", field), report)
        if value:
            kept[field] = value
    for field in source.peek("metadata") or {}:
        if field not in manifest.KEPT_METADATA:
            report.lose(("metadata", field), OF_THE_OBJECT, source.take("metadata", field))
    return kept


def _sizes(source: Source, report: Report, roles: Sequence[Role]) -> tuple[int, int]:
    """The fewest and most pods, master included."""
    total = sum(role.replicas for role in roles)
    elastic = source.peek("spec", "elasticPolicy") is not None
    fewest, most = _elastic_sizes(source, report, roles) if elastic else (total, total)
    path = ("spec", "runPolicy", "schedulingPolicy", "minAvailable")
    gang = source.take(*path)
    if gang is None:
        pass
    elif elastic or not 1 <= count(gang, path) <= total or not all(role.program.is_torchrun for role in roles):
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
    """The sizes as torchrun counts them there, with the Master. An absent bound equals the other one, or Worker's."""
    at: Path = ("spec", "elasticPolicy")
    written = [source.take(*at, field) for field in ("minReplicas", "maxReplicas")]
    default = next((value for value in written if value is not None), roles[-1].replicas)
    fewest, most = (default if value is None else value for value in written)
    fewest, most = count(fewest, (*at, "minReplicas")), count(most, (*at, "maxReplicas"))
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
            nproc = "auto" if written in ("auto", "gpu") else count(_number(written), path)
            is_auto = _is_auto(nproc, roles)
            became = f"nothing: auto, one process per GPU, is {nproc}" if is_auto else f"spec.nprocPerNode: {nproc}"
            report.keep(path, became, written)
    if _is_auto(nproc, roles):
        report.note(f"nprocPerNode is auto, its default: one process per GPU is {nproc}, as before.")
        return None
    return None if nproc == "auto" else nproc


def _is_auto(nproc: int | str | None, roles: Sequence[Role]) -> bool:
    """Whether one process per GPU is that number in each pod."""
    return isinstance(nproc, int) and all(max(1, main_gpus_of(role.template)) == nproc for role in roles)


def _templates(roles: Sequence[Role]) -> dict[str, Any]:
    """One template for all pods, and the master's if it differs."""
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


def from_documents(bodies: Sequence[Mapping[str, Any]], entrypoint: Sequence[str] = ()) -> Iterator[Converted]:
    """Each object of a file: PyTorchJobs as jobs, the others as they are, the items of a List one by one.

    Raises:
        ConvertError: there is no PyTorchJob among them, or one cannot be converted.
    """
    items = [item for body in bodies for item in _items(body)]
    if not any(item.get("kind") == KIND for item in items):
        kinds = ", ".join(str(item.get("kind")) for item in items) or "nothing"
        raise ConvertError(f"kind: {kinds}: must be {KIND}, at least once")
    for item in items:
        if item.get("kind") == KIND:
            yield from_pytorchjob(item, entrypoint=entrypoint)
        else:
            yield Converted(dict(item), notes=(f"{item.get('kind')}: stays as it is.",))


def _items(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The objects of a List, or the object itself. Raises ConvertError."""
    if body.get("kind") != "List":
        return [body]
    items = body.get("items") or []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise ConvertError("items: must be a list of objects of Kubernetes, each with kind and spec")
    return items
