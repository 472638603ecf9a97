"""The CustomResourceDefinition of `ElasticPyTorchJob`: its models, its rules between fields and its columns.

`parse.py` checks the content of the opaque pod templates.
"""

from __future__ import annotations

from elastic_api.definition import Definition, Rule
from elastic_api.job import (
    FILE_NAME,
    KIND,
    MAX_NAME_LENGTH,
    MODULE_NAME,
    NEEDS_PATH,
    PLURAL,
    SIGNAL_NEEDS_PATH,
    JobSpec,
)
from elastic_api.status import JobStatus


def _fixed_while_running(field: str, *, optional: bool = False) -> Rule:
    """A rule that lets `field` change only in a job that was suspended before the update.

    The pods of a running job were made from the old object, so the job must be suspended before the update. An update
    may change the field and resume the job at once.
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


def _elastic_only(path: tuple[str, ...], field: str, default: str) -> Rule:
    """A rule that keeps `field` of the part at `path` at its default (CEL) under torchrun, where it has no meaning."""
    at = ".".join(("self", *path, field))
    return Rule(
        at=("spec",),
        rule=f"self.runtime.mode == 'Elastic' || {at} == {default}",
        message="must be left out where runtime.mode is Torchrun; or set runtime.mode to Elastic",
        field=".".join((*path, field)),
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
    Rule(
        at=("spec",),
        rule=f"self.runtime.preload.all(name, name.matches('{MODULE_NAME}'))",
        message="every entry must be the name of a Python module, such as torchvision.models",
        field="runtime.preload",
    ),
    Rule(
        at=("spec",),
        rule="self.elasticity.checkpointPath == '' || self.elasticity.checkpointPath.startsWith('/')",
        message="must be an absolute path in the main container, such as /checkpoints; or empty for none",
        field="elasticity.checkpointPath",
        value="self.elasticity.checkpointPath",
    ),
    Rule(
        at=("spec",),
        rule="!self.elasticity.checkpointComplete.contains('/')",
        message=FILE_NAME,
        field="elasticity.checkpointComplete",
        value="self.elasticity.checkpointComplete",
    ),
    Rule(
        at=("spec",),
        rule="self.elasticity.checkpointComplete == '' || self.elasticity.checkpointPath != ''"
        " || self.runtime.mode != 'Elastic'",
        message=NEEDS_PATH,
        field="elasticity.checkpointComplete",
        value="self.elasticity.checkpointComplete",
    ),
    Rule(
        at=("spec",),
        rule="self.elasticity.checkpointSignal == '' || self.elasticity.checkpointPath != ''"
        " || self.runtime.mode != 'Elastic'",
        message=SIGNAL_NEEDS_PATH,
        field="elasticity.checkpointSignal",
        value="self.elasticity.checkpointSignal",
    ),
    _elastic_only(("runtime",), "inject", "true"),
    _elastic_only(("runtime",), "python", "''"),
    _elastic_only(("runtime",), "preload", "[]"),
    _elastic_only(("elasticity",), "checkpointPath", "''"),
    _elastic_only(("elasticity",), "checkpointComplete", "''"),
    _elastic_only(("elasticity",), "checkpointSignal", "''"),
    _elastic_only(("elasticity",), "alignTimeoutSeconds", "60"),
    _elastic_only(("recovery",), "stallSeconds", "1800"),
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
    {"name": "Progress", "type": "integer", "jsonPath": ".status.training.progressPercentage"},
    {"name": "ETA", "type": "string", "jsonPath": ".status.training.eta"},
    {"name": "World", "type": "integer", "jsonPath": ".status.worldSize", "priority": 1},
    {"name": "Step", "type": "integer", "jsonPath": ".status.training.step", "priority": 1},
    {"name": "Loss", "type": "string", "jsonPath": '.status.training.metrics[?(@.name=="loss")].value', "priority": 1},
    {"name": "Goodput", "type": "number", "jsonPath": ".status.training.goodput", "priority": 1},
    {"name": "Queue", "type": "integer", "jsonPath": ".status.queue.position", "priority": 1},
    {"name": "Starts", "type": "string", "jsonPath": ".status.queue.estimatedStartTime", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)

JOB = Definition(
    kind=KIND,
    plural=PLURAL,
    short_name="eptj",
    scope="Namespaced",
    description="A PyTorch training job that runs with any allowed number of pods between minReplicas and maxReplicas:"
    " it grows into idle GPUs and gives them back.",
    spec=JobSpec,
    spec_description="The desired state. The operator never writes it.",
    status=JobStatus,
    rules=RULES,
    columns=COLUMNS,
    scale={
        "specReplicasPath": ".spec.maxReplicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    },
)
