"""Checks an object against the CRD's structural schema, as the API server does before it looks at any rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elastic_api.crd import JOB

TYPES = {"string": str, "boolean": bool, "array": list, "object": dict, "number": (int, float)}
SCHEMA = JOB.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def mistakes(value: Any, schema: dict[str, Any] = SCHEMA, path: str = "") -> Iterator[str]:
    """What the schema does not allow, each by its path."""
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str):
            yield f"{path}: {value!r}"
        return
    if kind == "integer" and (isinstance(value, bool) or not isinstance(value, int)):
        yield f"{path}: {value!r} is no integer"
    elif kind in TYPES and not isinstance(value, TYPES[kind]):
        yield f"{path}: {value!r} is no {kind}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value!r} is out of bounds"
    if isinstance(value, list):
        for index, child in enumerate(value):
            yield from mistakes(child, schema.get("items", {}), f"{path}[{index}]")
    if isinstance(value, dict) and path != ".metadata" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        yield from _fields(value, schema, path)


def _fields(value: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    for name in schema.get("required", []):
        if name not in value:
            yield f"{path}.{name} is missing"
    for name, child in value.items():
        if name not in schema.get("properties", {}):
            yield f"{path}.{name} is unknown"
        else:
            yield from mistakes(child, schema["properties"][name], f"{path}.{name}")
