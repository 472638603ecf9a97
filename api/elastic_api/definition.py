"""The common part of the CustomResourceDefinitions: a kind as data, and the manifest made from it.

The models give fields, bounds, defaults and descriptions; a `Definition` adds rules between fields, in CEL, and the
columns of `kubectl get`, which models cannot express.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel

from elastic_api.job import GROUP, VERSION
from elastic_api.schema import structural_schema

_HEADER = "# Generated from api/elastic_api by `make crds`; do not edit.\n"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule that the API server checks when an object is written.

    Attributes:
        at: Path of the schema node that carries the rule, from the root, `[]` for the entries of a list; `self` in the
            rule is the value there.
        rule: CEL; a rule that names `oldSelf` is checked on updates only.
        message: What to write instead.
        field: The wrong field, relative to `at`; empty if the node itself is wrong.
        value: CEL for the wrong value, with which the message then begins; the API server itself shows only scalars
            that carry the rule themselves.
        reason: Machine-readable cause.
    """

    at: tuple[str, ...]
    rule: str
    message: str
    field: str = ""
    value: str = ""
    reason: str = "FieldValueInvalid"

    def manifest(self) -> dict[str, str]:
        """The rule as an entry of `x-kubernetes-validations`."""
        entry = {"rule": self.rule, "message": self.message, "reason": self.reason}
        if self.value:
            # `+` would suffice, but the API server does not know the length of a number's text and rejects it as too
            # expensive.
            entry["messageExpression"] = f"{json.dumps('%s: ' + self.message)}.format([{self.value}])"
        return {**entry, "fieldPath": f".{self.field}"} if self.field else entry


@dataclass(frozen=True, slots=True)
class Definition:
    """One kind. The descriptions are of the whole object, its spec and its status.

    `scale` are the paths of the scale subresource; without them there is none.
    """

    kind: str
    plural: str
    short_name: str
    scope: str
    description: str
    spec: type[BaseModel]
    spec_description: str
    status: type[BaseModel]
    rules: tuple[Rule, ...]
    columns: tuple[Mapping[str, Any], ...]
    scale: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        """`plural.group`, as the definition itself is called."""
        return f"{self.plural}.{GROUP}"

    @property
    def file_name(self) -> str:
        """The name of the definition's file in the repository."""
        return f"{GROUP}_{self.plural}.yaml"

    def manifest(self) -> dict[str, Any]:
        """The CustomResourceDefinition as the API server takes it."""
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {
                "group": GROUP,
                "scope": self.scope,
                "names": {
                    "kind": self.kind,
                    "listKind": f"{self.kind}List",
                    "plural": self.plural,
                    "singular": self.kind.lower(),
                    "shortNames": [self.short_name],
                    "categories": ["ml"],
                },
                "versions": [self._version()],
            },
        }

    def text(self) -> str:
        """The CustomResourceDefinition as YAML, as checked in under crds/."""
        return _HEADER + yaml.safe_dump(self.manifest(), sort_keys=False, width=120)

    def _version(self) -> dict[str, Any]:
        scale = {"scale": dict(self.scale)} if self.scale else {}
        return {
            "name": VERSION,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": self._schema()},
            "subresources": {"status": {}, **scale},
            "additionalPrinterColumns": [dict(column) for column in self.columns],
        }

    def _schema(self) -> dict[str, Any]:
        schema = {
            "description": self.description,
            "type": "object",
            "required": ["spec"],
            "properties": {
                "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}."},
                "kind": {"type": "string", "description": f"{self.kind}."},
                # The name is here only because a rule's fieldPath must exist in the schema.
                "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
                "spec": {**structural_schema(self.spec, defaults=True), "description": self.spec_description},
                # Without defaults: the operator reads back exactly what it wrote.
                "status": {
                    **structural_schema(self.status, defaults=False),
                    "description": "The observed state, as the operator last saw it.",
                },
            },
        }
        for rule in self.rules:
            _node(schema, rule.at).setdefault("x-kubernetes-validations", []).append(rule.manifest())
        return schema


def _node(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for name in path:
        schema = schema["items"] if name == "[]" else schema["properties"][name]
    return schema
