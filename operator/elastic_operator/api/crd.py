"""The CustomResourceDefinition of `ElasticPyTorchJob`, generated from the models in `job.py` and `status.py`.

The models give fields, bounds, defaults and descriptions; the tables below add what they cannot say: rules between
fields, in CEL, and the columns of `kubectl get`. What stands inside the opaque pod templates is checked by `parse.py`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import yaml

from elastic_operator.api.job import GROUP, KIND, MAX_NAME_LENGTH, PLURAL, VERSION, JobSpec
from elastic_operator.api.schema import structural_schema
from elastic_operator.api.status import JobStatus


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule that the API server checks when a job is written.

    Attributes:
        at: Path of the schema node that carries the rule, from the root; `self` in the rule is the value there.
        rule: CEL; a rule that names `oldSelf` is checked on updates only.
        message: What to write instead.
        field: Field that is wrong, relative to `at`; empty where the node itself is.
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
            # `+` would do, but the API server does not know how long a number's text may be and finds it too expensive.
            entry["messageExpression"] = f"{json.dumps('%s: ' + self.message)}.format([{self.value}])"
        return {**entry, "fieldPath": f".{self.field}"} if self.field else entry


def _fixed_while_running(field: str, *, optional: bool = False) -> Rule:
    """A rule that lets `field` change only in a job that was suspended before the update.

    Before, and not by it: the pods of a running job were made from what stands in the old object. An update may change
    the field and resume the job in one go.
    """
    same = f"self.{field} == oldSelf.{field}"
    if optional:
        same = f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || {same})"
    return Rule(
        at=("spec",),
        rule=f"oldSelf.suspend || ({same})",
        message=f"must stay as it is while the job runs; set spec.suspend to true first, then change {field}",
        field=field,
        reason="FieldValueForbidden",
    )


RULES = (
    Rule(
        at=(),
        rule=f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
        message=f"must be at most {MAX_NAME_LENGTH} characters long: the names of pods are made from it",
        field="metadata.name",
        value="self.metadata.name",
    ),
    Rule(
        at=(),
        rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        message="must be lower-case letters, digits and '-', must start with a letter and must end with a letter or a"
        " digit: a Service is named after it",
        field="metadata.name",
        value="self.metadata.name",
    ),
    Rule(
        at=("spec",),
        rule="self.minReplicas <= self.maxReplicas",
        message="must be at least minReplicas; for no pods at all set suspend to true",
        field="maxReplicas",
        value="self.maxReplicas",
    ),
    Rule(
        at=("spec",),
        rule="!has(self.allowedReplicas)"
        " || self.allowedReplicas.all(n, n >= self.minReplicas && n <= self.maxReplicas)",
        message="every size must be within minReplicas and maxReplicas",
        field="allowedReplicas",
        value="self.allowedReplicas.filter(n, n < self.minReplicas || n > self.maxReplicas)",
    ),
    Rule(
        at=("spec",),
        rule="!has(self.allowedReplicas) || !has(self.replicaStep)",
        message="must be absent beside allowedReplicas: write the one or the other",
        field="replicaStep",
        value="self.replicaStep",
        reason="FieldValueForbidden",
    ),
    Rule(
        at=("spec", "nprocPerNode"),
        rule="type(self) == int ? self >= 1 && self <= 1024 : self == 'auto'",
        message="must be an integer from 1 to 1024, or auto (one process per GPU of the pod)",
    ),
    _fixed_while_running("template"),
    _fixed_while_running("master", optional=True),
    _fixed_while_running("worker", optional=True),
    _fixed_while_running("nprocPerNode"),
    _fixed_while_running("runtime"),
)

COLUMNS = (
    {"name": "Status", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].reason'},
    {"name": "Pods", "type": "integer", "jsonPath": ".status.replicas"},
    {"name": "Min", "type": "integer", "jsonPath": ".spec.minReplicas"},
    {"name": "Max", "type": "integer", "jsonPath": ".spec.maxReplicas"},
    {"name": "GPUs", "type": "integer", "jsonPath": ".status.gpus"},
    {"name": "Limited by", "type": "string", "jsonPath": '.status.conditions[?(@.type=="FullSize")].reason'},
    {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts"},
    {"name": "World", "type": "integer", "jsonPath": ".status.worldSize", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)

_HEADER = "# Generated from operator/elastic_operator/api by `make crds`; do not edit.\n"


def manifest() -> dict[str, Any]:
    """The CustomResourceDefinition as the API server takes it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["eptj"],
                "categories": ["ml"],
            },
            "versions": [_version()],
        },
    }


def generate() -> str:
    """The CustomResourceDefinition as YAML, as checked in under crds/."""
    return _HEADER + yaml.safe_dump(manifest(), sort_keys=False, width=120)


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.maxReplicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [dict(column) for column in COLUMNS],
    }


def _schema() -> dict[str, Any]:
    schema = {
        "description": "A PyTorch training job that runs with any allowed number of pods between minReplicas and"
        " maxReplicas: it grows into idle GPUs and gives them back.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}."},
            "kind": {"type": "string", "description": f"{KIND}."},
            # The name is here only because a rule's fieldPath must exist in the schema.
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": {
                **structural_schema(JobSpec, defaults=True),
                "description": "What is wanted. The operator never writes it.",
            },
            # Without defaults: what the operator reads back is what it wrote.
            "status": {
                **structural_schema(JobStatus, defaults=False),
                "description": "What is, as the operator last saw it.",
            },
        },
    }
    for rule in RULES:
        _node(schema, rule.at).setdefault("x-kubernetes-validations", []).append(rule.manifest())
    return schema


def _node(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for name in path:
        schema = schema["properties"][name]
    return schema


if __name__ == "__main__":
    sys.stdout.write(generate())
