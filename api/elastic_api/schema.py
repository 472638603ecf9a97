"""Turns a pydantic model's JSON schema into the structural schema of a CustomResourceDefinition.

Structural means: no references, no `anyOf`, no `null`. References are put in place; an optional field is one that is
not required; an object whose fields all have defaults is itself `{}` by default, so that these apply if it is absent.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from pydantic import BaseModel

_KEPT = (
    "description",
    "type",
    "format",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "required",
)
_NULL = {"type": "null"}

Schema = dict[str, Any]


def structural_schema(model: type[BaseModel], *, defaults: bool) -> Schema:
    """The structural schema of `model`, with its defaults or without any."""
    raw = model.model_json_schema(by_alias=True)
    return _Writer(definitions=raw.get("$defs", {}), defaults=defaults).node(raw)


class _Writer:
    def __init__(self, *, definitions: dict[str, Schema], defaults: bool) -> None:
        self._definitions = definitions
        self._defaults = defaults

    def node(self, raw: Schema) -> Schema:
        # Copied: a definition used twice would be one object in two places, which YAML writes as an alias.
        raw = deepcopy(self._resolved(raw))
        schema = {key: raw[key] for key in _KEPT if key in raw}
        schema |= {key: value for key, value in raw.items() if key.startswith("x-kubernetes-")}
        if self._defaults and raw.get("default") is not None:
            schema["default"] = raw["default"]
        if "items" in raw:
            schema["items"] = self.node(raw["items"])
        if isinstance(raw.get("additionalProperties"), dict):
            schema["additionalProperties"] = self.node(raw["additionalProperties"])
        if "properties" in raw:
            required = raw.get("required", [])
            schema["properties"] = {
                name: self._property(child, required=name in required) for name, child in raw["properties"].items()
            }
        return schema

    def _property(self, raw: Schema, *, required: bool) -> Schema:
        schema = self.node(raw)
        nullable = _NULL in raw.get("anyOf", ())
        if self._defaults and "properties" in schema and not required and not nullable:
            schema["default"] = {}
        return schema

    def _resolved(self, raw: Schema) -> Schema:
        """`raw` with its reference or its alternatives resolved."""
        if "$ref" in raw:
            return {**self._definitions[raw["$ref"].rpartition("/")[2]], **raw}
        if "anyOf" not in raw:
            return raw
        options = [option for option in raw["anyOf"] if option != _NULL]
        if len(options) == 1:
            return {**self._resolved(options[0]), **raw}
        types = sorted(option["type"] for option in options)
        assert types == ["integer", "string"], f"no structural schema for {raw}"
        return {**raw, "x-kubernetes-int-or-string": True}
