"""Turns an object from the API server into its spec and status, or `InvalidSpecError` with every mistake.

The CRDs refuse most mistakes when an object is written. This module handles the rest: the opaque pod templates, and
objects that were stored under an older CRD. For any stored object, the result is a spec or an `InvalidSpecError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from elastic_api import pod_types as pod_shape
from elastic_api.elastic import elastic_errors
from elastic_api.invalid import FieldError, InvalidSpecError, Path, field_errors
from elastic_api.job import NEEDS_PATH, SIGNAL_NEEDS_PATH, JobSpec
from elastic_api.launch_line import flags_not_used, launch_errors
from elastic_api.policy import PolicySpec
from elastic_api.status import JobStatus
from elastic_api.template import GPU_RESOURCES
from elastic_api.template_rules import role_errors, template_errors

MAX_DEPTH = 64
"""The deepest nesting of mappings and lists in a spec. A pod template needs fewer than 20; copying and
dumping recurse.
"""

MAX_TEMPLATE = 256 * 1024
"""The most bytes of a pod template as JSON. Each pod is made from a copy of it, and each message may repeat it."""
TOO_LARGE = (
    "must be at most 256 kB as JSON, not {size} kB: bring long lists and texts in by a ConfigMap, a volume or the image"
)
IGNORED = "this release of the operator has no such field; the job goes on without it. Take it away, or upgrade"
MAX_IGNORED = 8
"""The most ignored fields in a message."""
_LEAVES = (str, int, float, bool, type(None))
"""The types of most values of a large template. Testing for these first is five times cheaper than testing for a
mapping.
"""
_TEMPLATES: tuple[Path, ...] = (("template",), ("master", "template"), ("worker", "template"))


def parse_spec(
    body: Mapping[str, Any], *, gpu_resources: Sequence[str] = GPU_RESOURCES, has_run: bool = False
) -> JobSpec:
    """The spec of the job `body` (the whole object), its templates free of nulls.

    Args:
        body: The object as decoded from JSON.
        gpu_resources: Extended resources that count as GPUs.
        has_run: The job has run, so a launch line that would be refused now is only named (`unused_flags`).

    Raises:
        InvalidSpecError: with every mistake that was found.
    """
    raw = body.get("spec", {})
    if _deeper_than(raw, MAX_DEPTH):
        raise InvalidSpecError([FieldError(("spec",), f"must not be nested deeper than {MAX_DEPTH} levels")])
    _refuse_any(_size_errors(raw))
    spec = _validated(raw)
    templates = _templates_in_use(spec)
    _refuse_any(error for path, template in templates.items() for error in _shape_errors(template, at=path))
    spec = _validated(_without_nulls(raw))
    _refuse_any(_rule_errors(spec, gpu_resources, has_run=has_run))
    return spec


def known_part(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """A job's spec without the fields that this release does not know, and a warning about these; "" if there are none
    (99).

    They belong to a later release of the operator, whose definitions stay when the operator is rolled back. Fields of
    pods are not examined.
    """
    if _deeper_than(raw, MAX_DEPTH):
        return raw, ""
    try:
        JobSpec.model_validate(raw)
    except ValidationError as error:
        paths = [details["loc"] for details in error.errors(include_url=False) if details["type"] == "extra_forbidden"]
        for path in paths:
            raw = _without(raw, path)
        return raw, "; ".join(str(FieldError(("spec", *path), IGNORED)) for path in paths[:MAX_IGNORED])
    return raw, ""


def unused_flags(spec: JobSpec) -> str:
    """A warning about torchrun's flags in the templates that the job does not follow; "" if there are none."""
    return flags_not_used(spec, _templates_in_use(spec))


def _without(value: Any, path: Path) -> Any:
    """A copy of nested mappings and lists without the value at the path."""
    step, *rest = path
    if not rest:
        return {key: child for key, child in value.items() if key != step}
    if isinstance(value, list):
        return [_without(child, tuple(rest)) if index == step else child for index, child in enumerate(value)]
    return {key: _without(child, tuple(rest)) if key == step else child for key, child in value.items()}


def parse_policy(body: Mapping[str, Any]) -> PolicySpec:
    """The spec of the policy `body` (the whole object). Raises InvalidSpecError with every mistake that was found."""
    raw = body.get("spec", {})
    if _deeper_than(raw, MAX_DEPTH):
        raise InvalidSpecError([FieldError(("spec",), f"must not be nested deeper than {MAX_DEPTH} levels")])
    try:
        return PolicySpec.model_validate(_without_nulls(raw))
    except ValidationError as error:
        raise InvalidSpecError(field_errors(error, at=("spec",))) from None


def parse_status(body: Mapping[str, Any]) -> JobStatus:
    """The status of the job `body`; invalid fields, which others than the operator wrote, count as absent."""
    status = body.get("status")
    known = dict(status) if isinstance(status, Mapping) else {}
    try:
        return JobStatus.model_validate(known)
    except ValidationError as error:
        for details in error.errors():
            known.pop(str(details["loc"][0]), None)
        return JobStatus.model_validate(known)


def _validated(raw: object) -> JobSpec:
    try:
        return JobSpec.model_validate(raw)
    except ValidationError as error:
        raise InvalidSpecError(field_errors(error, at=("spec",))) from None


def _templates_in_use(spec: JobSpec) -> dict[Path, Mapping[str, Any]]:
    """The templates that pods are made from, by path: without `spec.template` if both roles have their own."""
    roles = {"master": spec.master, "worker": spec.worker}
    return {
        ("spec", role, "template") if own else ("spec", "template"): spec.template_of(role)
        for role, own in roles.items()
    }


def _shape_errors(template: Mapping[str, Any], *, at: Path) -> list[FieldError]:
    try:
        pod_shape.PodTemplate.model_validate(template)
    except ValidationError as error:
        return field_errors(error, at=at)
    return []


def _rule_errors(spec: JobSpec, gpu_resources: Sequence[str], *, has_run: bool) -> Iterator[FieldError]:
    if not spec.sizes():
        remedy = "must be at least minReplicas, with an allowed size between the two"
        yield FieldError(("spec", "maxReplicas"), remedy, spec.max_replicas)
    if not spec.elasticity.checkpoint_path:
        yield from _need_path(spec)
    for path, template in _templates_in_use(spec).items():
        yield from template_errors(template, at=path, gpu_resources=gpu_resources)
        if not has_run:
            yield from launch_errors(template, spec, at=path)
        if spec.is_elastic:
            yield from elastic_errors(template, at=path)
    yield from role_errors(spec, gpu_resources=gpu_resources)


def _need_path(spec: JobSpec) -> Iterator[FieldError]:
    if complete := spec.elasticity.checkpoint_complete:
        yield FieldError(("spec", "elasticity", "checkpointComplete"), NEEDS_PATH, complete)
    if number := spec.elasticity.checkpoint_signal:
        yield FieldError(("spec", "elasticity", "checkpointSignal"), SIGNAL_NEEDS_PATH, number)


def _size_errors(raw: object) -> Iterator[FieldError]:
    """The templates that are too large to be copied for each pod. Other fields have limits in the CRD."""
    for path in _TEMPLATES:
        template = _at(raw, path)
        size = len(
            json.dumps(template, ensure_ascii=False, separators=(",", ":"), default=str).encode(errors="replace")
        )
        if size > MAX_TEMPLATE:
            yield FieldError(("spec", *path), TOO_LARGE.format(size=-(-size // 1024)))


def _at(value: object, path: Path) -> object:
    """The value at a path; None if there is none."""
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _refuse_any(errors: Iterator[FieldError]) -> None:
    if found := list(errors):
        raise InvalidSpecError(found)


def _deeper_than(value: object, levels: int) -> bool:
    """Whether mappings and lists nest deeper than `levels`. Without recursion, because the depth is unlimited."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [child for parent in layer for child in _children(parent)]
        if not layer:
            return False
    return True


def _children(value: object) -> Sequence[object]:
    if isinstance(value, _LEAVES):
        return ()
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _without_nulls(value: Any) -> Any:
    """`value` without null fields, which the API server treats as absent."""
    if isinstance(value, _LEAVES):
        return value
    if isinstance(value, Mapping):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    return [_without_nulls(child) for child in value] if isinstance(value, list) else value
