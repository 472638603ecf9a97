"""Builds an ElasticPyTorchJob as a plain mapping, checks it as the operator would, and writes it as YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from elastic_api.invalid import InvalidSpecError
from elastic_api.job import API_VERSION, KIND, MAX_NAME_LENGTH, JobSpec
from elastic_api.parse import parse_spec
from elastic_client.convert.converted import ConvertError, Report
from elastic_worker.contract import MAIN_CONTAINER

GPU = "nvidia.com/gpu"
NAME_RULE = (
    f"write at most {MAX_NAME_LENGTH} lower-case letters, digits and '-' that begin with a letter and do not end with"
    " '-': pods and a Service are named after it"
)
KEPT_METADATA = ("name", "generateName", "namespace", "labels", "annotations")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
SHARED_MEMORY = "shared-memory"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_OTHER_BREAKS = re.compile("[\r\x85\u2028\u2029]")
_PLAIN = re.compile(r"-{0,2}[A-Za-z_/]")
_RESERVED = ("y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf", "infinity", "nan")
_FIELDS = {field.alias or name: number for number, (name, field) in enumerate(JobSpec.model_fields.items())}


def job(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The object, without fields that are absent, its spec in the order of the reference. Raises ConvertError."""
    kept = {key: spec[key] for key in sorted(spec, key=lambda key: _FIELDS.get(key, 99)) if spec[key] is not None}
    manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {**metadata}, "spec": kept}
    check(manifest)
    return manifest


def in_namespace(manifest: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """The object in that namespace; unchanged if `namespace` is "". Raises ConvertError for an invalid name."""
    if not namespace:
        return dict(manifest)
    if not _NAMESPACE.fullmatch(namespace):
        raise ConvertError(f"--namespace {namespace}: write lower-case letters, digits and '-', such as team-a")
    metadata = {**manifest["metadata"], "namespace": namespace}
    return {**manifest, "metadata": {key: metadata[key] for key in KEPT_METADATA if key in metadata}}


def check(manifest: Mapping[str, Any]) -> JobSpec:
    """The spec as the operator reads it. Raises ConvertError with the operator's own words if it does not accept it."""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping):
        raise ConvertError("metadata: must be a mapping with a name")
    name = metadata.get("name")
    if name is not None:
        check_name(name)
    try:
        spec = parse_spec(manifest)
    except InvalidSpecError as error:
        raise ConvertError(str(error)) from None
    if spec.min_replicas > spec.max_replicas:
        raise ConvertError(f"spec.maxReplicas: {spec.max_replicas}: must be at least minReplicas, {spec.min_replicas}")
    return spec


def check_name(name: object, field: str = "metadata.name") -> str:
    """The name, if a job may have it. Raises ConvertError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise ConvertError(f"{field}: {name!r}: {NAME_RULE}")
    return name


def fitting_name(text: str) -> str:
    """A valid name of a job, as similar to the text as possible; "" if no part of the text can be used."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower())
    return re.sub(r"^[^a-z]+", "", plain)[:MAX_NAME_LENGTH].strip("-")


def metadata_for(name: str, script: str, report: Report) -> dict[str, str]:
    """The given name, else a `generateName` after the script. Raises ConvertError."""
    if name:
        return {"name": check_name(name, "--name")}
    stem = fitting_name(script.rpartition("/")[2].removesuffix(".py"))[: MAX_NAME_LENGTH - 6].strip("-") or "job"
    report.note(f"The cluster adds letters to the name {stem}-; choose a name by --name.")
    return {"generateName": f"{stem}-"}


def sizes(fewest: int, most: int) -> dict[str, int]:
    """The two fields of the size, in pods with the master. Raises ConvertError."""
    if not 1 <= fewest <= most:
        raise ConvertError(f"{fewest}:{most}: write the fewest pods and the most, master included, such as 2:8")
    return {"minReplicas": fewest, "maxReplicas": most}


def pods(fewest: int, most: int) -> str:
    """A size in words."""
    return f"{most} {_plural('pod', most)}" if fewest == most else f"{fewest} to {most} pods"


def counted(fewest: int, most: int, gpus: int = 0) -> str:
    """A sentence on the number of pods, which says what master, worker, min and max count."""
    workers = f"{most - 1}" if fewest == most else f"{fewest - 1} to {most - 1}"
    in_all = most * gpus
    each = f"{gpus} {_plural('GPU', gpus)}"
    asked = "" if not gpus else f", with {each}" if most == 1 else f", {each} in each, at most {in_all} in all"
    roles = "the master" if most == 1 else f"1 master and {workers} {_plural('worker', most - 1)}"
    return (
        f"{pods(fewest, most)}{', ' if most == 1 else ': '}{roles}{asked}. minReplicas and maxReplicas count the"
        " master, as --nnodes does."
    )


def container(
    image: str, command: Sequence[str], args: Sequence[str], *, parts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The main container, without parts that are empty."""
    whole = {"name": MAIN_CONTAINER, "image": image, "command": list(command), "args": list(args), **(parts or {})}
    return {key: value for key, value in whole.items() if value not in ([], {}, "", None)}


def shared_memory() -> tuple[dict[str, Any], dict[str, Any]]:
    """A volume and its mount, for processes that load data: a container's default /dev/shm has 64 MB."""
    volume = {"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory"}}
    return volume, {"name": SHARED_MEMORY, "mountPath": "/dev/shm"}


def as_written(body: Mapping[str, Any]) -> dict[str, Any]:
    """A job from the cluster as its author would write it: without status, defaults and the cluster's additions.

    Raises:
        ConvertError: the operator would not accept it.
    """
    spec = check(body).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    metadata = {key: value for key in KEPT_METADATA if (value := _own((body.get("metadata") or {}).get(key)))}
    return job(metadata, spec)


def _own(value: Any) -> Any:
    """Labels or annotations without those that kubectl adds."""
    return {k: v for k, v in value.items() if k != LAST_APPLIED} if isinstance(value, Mapping) else value


def to_yaml(manifest: Mapping[str, Any]) -> str:
    """The manifest as readable YAML: in the order of its fields, with texts of several lines as blocks."""
    return yaml.dump(dict(manifest), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """YAML without aliases, and with texts of several lines as blocks."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    """The style of the text: several lines as a block, else in quotes if a reader may mistake it for another type."""
    if _OTHER_BREAKS.search(text):
        return '"'
    if "\n" in text.strip():
        return "|"
    return None if _is_plain(text) else '"' if "'" in text else "'"


def _is_plain(text: str) -> bool:
    """Whether no reader of YAML, 1.1 or 1.2, reads the text as a number, a boolean or null."""
    return _PLAIN.match(text) is not None and text.lstrip("-").lower() not in _RESERVED


_Dumper.add_representer(str, _text)


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
