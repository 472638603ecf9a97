"""The CustomResourceDefinition of `GPUQuotaPolicy`: its models, its rules between fields and its columns.

No rule of the API server sees conflicts between policies (a namespace in two of them, a circle of parents).
`plan/policies/resolve.py` settles these, with a condition.
"""

from __future__ import annotations

from elastic_api.definition import Definition, Rule
from elastic_api.policy import KIND, PLURAL, PolicySpec, PolicyStatus

_EXPRESSION = ("spec", "namespaceSelector", "matchExpressions", "[]")

RULES = (
    Rule(
        at=(),
        rule="!has(self.spec.parent) || self.spec.parent != self.metadata.name",
        message="must be the name of another policy, or absent for a policy that is part of none",
        field="spec.parent",
        value="self.spec.parent",
    ),
    Rule(
        at=_EXPRESSION,
        rule="!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
        message="must name at least one value for the operators In and NotIn; to ask only whether the label is there,"
        " use Exists or DoesNotExist",
        field="values",
        reason="FieldValueRequired",
    ),
    Rule(
        at=_EXPRESSION,
        rule="self.operator in ['In', 'NotIn'] || !has(self.values) || size(self.values) == 0",
        message="must be absent for the operators Exists and DoesNotExist; to compare values, use In or NotIn",
        field="values",
        reason="FieldValueForbidden",
    ),
)

COLUMNS = (
    {"name": "Guaranteed", "type": "integer", "jsonPath": ".status.total.guaranteed"},
    {"name": "Used", "type": "integer", "jsonPath": ".status.total.used"},
    {"name": "Borrowed", "type": "integer", "jsonPath": ".status.total.borrowed"},
    {"name": "Lent", "type": "integer", "jsonPath": ".status.total.lent"},
    {"name": "Limit", "type": "integer", "jsonPath": ".status.total.limit"},
    {"name": "Pending", "type": "integer", "jsonPath": ".status.total.pending"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)

POLICY = Definition(
    kind=KIND,
    plural=PLURAL,
    short_name="gpuq",
    scope="Cluster",
    description="The GPUs guaranteed to a group of namespaces, and the idle GPUs that they may borrow.",
    spec=PolicySpec,
    spec_description="The namespaces that share GPUs, and their rules.",
    status=PolicyStatus,
    rules=RULES,
    columns=COLUMNS,
)
