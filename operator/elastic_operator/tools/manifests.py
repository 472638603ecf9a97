"""Reads changes to a snapshot from manifests, as `kubectl apply` takes them, and from names to delete.

They change jobs and quota policies. The same file may contain PriorityClasses and Namespaces that these refer to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError

from elastic_api.invalid import FieldError, InvalidSpecError, field_errors
from elastic_api.job import API_VERSION, KIND, PLURAL, JobSpec
from elastic_api.parse import parse_policy, parse_spec
from elastic_api.policy import KIND as POLICY
from elastic_api.policy import PLURAL as POLICIES
from elastic_api.policy import PolicySpec
from elastic_operator.cluster import objects
from elastic_operator.tools.files import InputError, read_text

_VERSIONS = {KIND: API_VERSION, POLICY: API_VERSION, "PriorityClass": "scheduling.k8s.io/v1", "Namespace": "v1"}
_SHORT = {
    **dict.fromkeys((KIND.lower(), PLURAL, "eptj", "job", "jobs"), KIND),
    **dict.fromkeys((POLICY.lower(), POLICIES, "gpuq", "policy", "policies"), POLICY),
}
DEFAULT_NAMESPACE = "default"


@dataclass(slots=True)
class Changes:
    """The applied and the deleted objects: jobs by (namespace, name), all others by name."""

    jobs: dict[tuple[str, str], JobSpec] = field(default_factory=dict)
    policies: dict[str, PolicySpec] = field(default_factory=dict)
    priority_classes: dict[str, objects.PriorityClass] = field(default_factory=dict)
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels by name."""
    deleted_jobs: set[tuple[str, str]] = field(default_factory=set)
    deleted_policies: set[str] = field(default_factory=set)


class _Meta(BaseModel):
    name: str = Field(strict=True, min_length=1)
    namespace: str = Field(default=DEFAULT_NAMESPACE, strict=True, min_length=1)
    labels: dict[str, str] = Field(default_factory=dict)


class _Manifest(BaseModel):
    metadata: _Meta
    spec: dict[str, Any] = Field(default_factory=dict)
    value: int = Field(default=0, strict=True)
    global_default: bool = Field(default=False, strict=True, alias="globalDefault")
    preemption_policy: Literal["Never", "PreemptLowerPriority"] = Field(
        default="PreemptLowerPriority", alias="preemptionPolicy"
    )


def read_changes(file: str | None, delete: Sequence[str], *, gpu_resources: Sequence[str]) -> Changes:
    """The changes of a file of manifests, and of names to delete such as `job/team-a/train`. Raises InputError."""
    changes, mistakes = Changes(), list[str]()
    for where, body in _documents(file) if file is not None else ():
        mistakes += [f"{where}: {mistake}" for mistake in _take(body, changes, gpu_resources)]
    mistakes += [mistake for name in delete for mistake in _take_deletion(name, changes)]
    if mistakes:
        raise InputError(mistakes)
    return changes


def _documents(file: str) -> Iterator[tuple[str, Any]]:
    """Each document with its place in the file. The items of a List count as documents, an empty document does not."""
    try:
        documents = list(yaml.safe_load_all(read_text(file)))
    except (yaml.YAMLError, ValueError) as error:
        raise InputError([f"{file}: is not YAML: {' '.join(str(error).split())}; write manifests"]) from None
    except RecursionError:
        raise InputError([f"{file}: is nested too deeply; write manifests"]) from None
    for number, document in enumerate(documents, start=1):
        items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
        for body in items if isinstance(items, list) else [document]:
            if body is not None:
                yield f"{file}: document {number}", body


def _take(body: Any, changes: Changes, gpu_resources: Sequence[str]) -> list[str]:
    """Add one manifest; returns the mistakes in it."""
    kind = body.get("kind") if isinstance(body, dict) else None
    if kind not in _VERSIONS:
        return [f"kind: {kind!r:.64}: must be {KIND}, {POLICY}, PriorityClass or Namespace"]
    if body.get("apiVersion") != _VERSIONS[kind]:
        return [f"apiVersion: {body.get('apiVersion')!r:.64}: must be {_VERSIONS[kind]}"]
    try:
        manifest = _Manifest.model_validate(body)
        _file_under(kind, manifest, changes, gpu_resources)
    except ValidationError as error:
        return [f"{kind}: {mistake}" for mistake in field_errors(error, at=())]
    except InvalidSpecError as error:
        return [f"{kind} {manifest.metadata.name}: {mistake}" for mistake in error.errors]
    return []


def _file_under(kind: str, manifest: _Manifest, changes: Changes, gpu_resources: Sequence[str]) -> None:
    name, namespace = manifest.metadata.name, manifest.metadata.namespace
    match kind:
        case "PriorityClass":
            changes.priority_classes[name] = objects.PriorityClass(
                objects.ClassMeta(name, f"simulated/{name}", "0"),
                manifest.value,
                manifest.global_default,
                manifest.preemption_policy,
            )
        case "Namespace":
            changes.namespaces[name] = manifest.metadata.labels
        case "GPUQuotaPolicy":
            changes.policies[name] = parse_policy({"spec": manifest.spec})
        case _:
            changes.jobs[namespace, name] = parse_spec({"spec": manifest.spec}, gpu_resources=gpu_resources)


def _take_deletion(name: str, changes: Changes) -> list[str]:
    kind, _, rest = name.partition("/")
    match _SHORT.get(kind.lower()), rest.split("/"):
        case "GPUQuotaPolicy", [policy] if policy:
            changes.deleted_policies.add(policy)
        case "ElasticPyTorchJob", [job] if job:
            changes.deleted_jobs.add((DEFAULT_NAMESPACE, job))
        case "ElasticPyTorchJob", [namespace, job] if namespace and job:
            changes.deleted_jobs.add((namespace, job))
        case _:
            return [str(FieldError(("--delete",), "must be job/NAMESPACE/NAME or policy/NAME", name))]
    return []
