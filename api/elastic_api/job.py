"""The spec of an `ElasticPyTorchJob` as users write it.

Field descriptions are `kubectl explain`'s text; defaults and bounds become the CRD's schema (see `crd.py`).
Sizes (`minReplicas`, `maxReplicas`) count pods *including* the master, as torchrun's `--nnodes=min:max` does.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from elastic_worker.contract import ROLE_MASTER

GROUP = "elastic-pytorch.dev"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "ElasticPyTorchJob"
PLURAL = "elasticpytorchjobs"

MAX_REPLICAS = 4096
MAX_ALLOWED_SIZES = 64
"""CEL's cost budget takes `.all()` over at most this many items."""
MAX_PROCESSES = 1024
"""Per pod; with one process per GPU, of GPUs per pod, too."""
MAX_NAME_LENGTH = 51
"""`NAME-worker-4095` must be a DNS label of at most 63 characters."""
MAX_SECONDS = 2**31 - 1
"""The longest period that counts from a point in time: 68 years, the limit of Kubernetes' own 32-bit fields."""
MAX_PRELOADED = 32
MAX_MODULE_NAME = 128
MAX_FINAL_CODES = 64
MODULE_NAME = r"^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$"
MAX_PATH = 1024
"""Characters of a path in a container."""
MAX_FILE_NAME = 255
FILE_NAME = "must be the name of a file without its folder, such as trainer_state.json or *.done; or empty"
SIGNAL_NEEDS_PATH = "must be left out where elasticity.checkpointPath is; or write there what the script saves"
NEEDS_PATH = "must be left out where elasticity.checkpointPath is; or write there in which folder that file is"


_NOT_KEPT: set[str] = set()
"""One set for all objects: pydantic copies it before it adds to it."""


class ApiModel(BaseModel):
    """camelCase outside, snake_case inside; an unknown field is an error that names it."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    def model_post_init(self, _context: object, /) -> None:
        """Forget which fields were given: this is never asked, and these sets take a third of a job's memory."""
        object.__setattr__(self, "__pydantic_fields_set__", _NOT_KEPT)


class RuntimeMode(StrEnum):
    """How the processes of a job find each other."""

    TORCHRUN = "Torchrun"
    ELASTIC = "Elastic"


class CleanPodPolicy(StrEnum):
    """Which pods go when the job has ended."""

    RUNNING = "Running"
    ALL = "All"
    NONE = "None"


def _absolute(path: str) -> str:
    if path and not path.startswith("/"):
        raise ValueError("must be an absolute path in the main container, such as /checkpoints; or empty for none")
    return path


def _file_name(name: str) -> str:
    if "/" in name:
        raise ValueError(FILE_NAME)
    return name


def _module_name(name: str) -> str:
    if not re.fullmatch(MODULE_NAME, name):
        raise ValueError("must be the name of a Python module, such as torchvision.models")
    return name


PodTemplate = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]


class RoleSpec(ApiModel):
    """What differs for one role."""

    template: PodTemplate = Field(description="PodTemplateSpec that replaces spec.template for the pods of this role.")


class Runtime(ApiModel):
    """How training processes are started and find each other."""

    mode: RuntimeMode = Field(
        default=RuntimeMode.TORCHRUN,
        description="Torchrun: the image's own torchrun with c10d rendezvous; a change of size restarts its processes."
        " Elastic: the operator's own launcher, which forks new processes from a parent that has torch loaded.",
    )
    inject: bool = Field(
        default=True,
        description="Elastic only. true: an init container installs the launcher. false: the image has the Python"
        " package elastic_worker installed.",
    )
    python: str = Field(
        default="",
        max_length=MAX_PATH,
        description="Elastic only. The image's Python interpreter with torch, as a path or a name on PATH. Empty:"
        " python3, otherwise python.",
    )
    preload: list[Annotated[str, Field(min_length=1, max_length=MAX_MODULE_NAME), AfterValidator(_module_name)]] = (
        Field(
            default_factory=list,
            max_length=MAX_PRELOADED,
            description="Elastic only. Python modules that the launcher loads once per pod beside torch, before it"
            " forks processes. They must neither start threads nor use a GPU at import.",
            json_schema_extra={"default": []},
        )
    )


class Elasticity(ApiModel):
    """How the job changes its size."""

    grace_period_seconds: int = Field(
        default=120,
        ge=0,
        le=86_400,
        description="Seconds a leaving pod gets to stop cleanly (its terminationGracePeriodSeconds), up to the ceiling"
        " of its team. Applies to pods created after an edit.",
    )
    scale_up_delay_seconds: int = Field(
        default=30,
        ge=0,
        le=86_400,
        description="After a change of size, the seconds before the operator grows the job by itself. Never delays a"
        " first start, a replacement, an edit, or a shrink. A job that loses work with each change of size, as all do"
        " in Torchrun mode, waits longer after its first growth, until the growth is worth the lost work; 0: it never"
        " waits.",
    )
    checkpoint_path: Annotated[str, AfterValidator(_absolute)] = Field(
        default="",
        max_length=MAX_PATH,
        description="Elastic only. The file or folder in the main container to which the script writes its checkpoints:"
        " a planned change of size takes place right after a complete checkpoint. Empty: at any time.",
    )
    checkpoint_complete: Annotated[str, AfterValidator(_file_name)] = Field(
        default="",
        max_length=MAX_FILE_NAME,
        description="Elastic only. The name of the last file that the script writes for each checkpoint, if"
        " checkpointPath is a folder; * and ? as in a shell. Empty: the launcher detects the formats of Hugging Face's"
        " trainer, Megatron, DeepSpeed and torch.distributed.checkpoint; any other is complete a second after the last"
        " write.",
    )
    checkpoint_signal: Literal["", "SIGUSR1", "SIGUSR2"] = Field(
        default="",
        description="Elastic only. The signal that requests a checkpoint from every process of the script before a"
        " planned change of size, after the same optimizer step in all. The launcher does not send it to a process"
        " without a handler. Empty: only elastic_worker.should_save() and the file $ELASTIC_SAVE_FILE request one.",
    )
    align_timeout_seconds: int = Field(
        default=60,
        ge=0,
        le=86_400,
        description="Elastic only. The most seconds that pods which have to leave wait for a checkpoint to begin. They"
        " wait for the end of a checkpoint that has begun within the grace period.",
    )


class Recovery(ApiModel):
    """What is survived, and how often."""

    max_failures_without_progress: int = Field(
        default=3,
        ge=0,
        le=1000,
        description="Failures in a row after which the job is Failed; 0: at the first. Lost pods and changes of size"
        " never count. The count resets when the training has a later checkpoint than at the previous failures, or a"
        " later step if it has no checkpoint. If that is unknown, as in Torchrun mode or for a script that counts from"
        " 0 in each run, it resets after ten minutes of running.",
    )
    max_restarts: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="How often the operator restarts the job after a failure in its whole life; after one more failure"
        " it is Failed. Lost pods and changes of size never count. Absent: no limit.",
    )
    final_exit_codes: list[Annotated[int, Field(ge=1, le=255)]] = Field(
        default_factory=list,
        max_length=MAX_FINAL_CODES,
        description="Exit codes of a training process after which the job is Failed at once, because another try would"
        " fail, too; not right after a pod joined, left or was lost. In Torchrun mode the code is the one in torchrun's"
        " summary in the log, otherwise the main container's own, except 1, with which torchrun always ends. A process"
        " that a signal ended has 128 plus the signal's number, as in a shell. In Elastic mode the master uses the"
        " codes of the time of its creation: an edit takes effect with the next master.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    master_loss_timeout_seconds: int = Field(
        default=300, ge=10, le=86_400, description="Seconds the other pods wait for a master to run."
    )
    node_loss_seconds: int = Field(
        default=40,
        ge=0,
        le=86_400,
        description="Seconds after which the operator gives up a pod on an unreachable node (not Ready) and replaces it"
        " elsewhere. Kubernetes waits 300; but all other pods of the job pause meanwhile, and a mistake costs only the"
        " work since the last checkpoint. The operator does not give up one of many nodes that became unreachable at"
        " once, nor in Elastic mode a node on which pods train according to the job's master. In Torchrun mode it"
        " replaces all pods of the job, unless the logs of the others show that they continue as a group of their own;"
        " before that it reads these logs for 20 seconds at least. It gives up a node with the taint"
        " node.kubernetes.io/out-of-service at once.",
    )
    stall_seconds: int = Field(
        default=1800,
        ge=10,
        le=MAX_SECONDS,
        description="Elastic only. Seconds without progress after which the launcher restarts the training processes:"
        " no step, by a script that has done some, and hardly any reads or writes; or no CPU time. It must be longer"
        " than an evaluation that reads nothing.",
    )


class JobSpec(ApiModel):
    """The spec of an `ElasticPyTorchJob`."""

    min_replicas: int = Field(
        ge=1,
        le=MAX_REPLICAS,
        description="The fewest pods, master included, with which the job runs; it starts only when all of them fit."
        " Equal to maxReplicas for a fault-tolerant job of fixed size.",
    )
    max_replicas: int = Field(
        ge=1,
        le=MAX_REPLICAS,
        description="The most pods, master included. Target of the scale subresource (`kubectl scale`, autoscalers);"
        " the operator never writes it.",
    )
    allowed_replicas: list[Annotated[int, Field(ge=1, le=MAX_REPLICAS)]] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_ALLOWED_SIZES,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="The only sizes the job may run with, all within minReplicas and maxReplicas. Exclusive with"
        " replicaStep.",
    )
    replica_step: int | None = Field(
        default=None,
        ge=1,
        le=MAX_REPLICAS,
        description="Allows the sizes minReplicas, minReplicas + step, minReplicas + 2 * step and so on only. Exclusive"
        " with allowedReplicas.",
    )
    nproc_per_node: Annotated[int, Field(ge=1, le=MAX_PROCESSES)] | Literal["auto"] = Field(
        default="auto",
        description="Training processes per pod. auto: one per GPU of the pod's main container, one if it requests"
        " none; the master may have another number of GPUs and processes than the workers.",
    )
    template: PodTemplate = Field(
        description="PodTemplateSpec of every pod. The main container is the one called pytorch, otherwise the first;"
        " its args without a command are the script and its arguments, a command runs unchanged."
    )
    master: RoleSpec | None = Field(default=None, description="The differences for the master.")
    worker: RoleSpec | None = Field(default=None, description="The differences for the workers.")
    runtime: Runtime = Field(default_factory=Runtime, description="How training processes start and find each other.")
    elasticity: Elasticity = Field(default_factory=Elasticity, description="How the job changes its size.")
    recovery: Recovery = Field(default_factory=Recovery, description="The faults that the job survives, and how often.")
    priority_class_name: str = Field(
        default="",
        max_length=253,
        description="PriorityClass that orders this job among jobs. A class that does not exist, or that the operator's"
        " settings do not allow, counts as 0. Pods never get this class; they get the template's class if its"
        " preemptionPolicy is Never, because pods of jobs never preempt.",
    )
    preemptible: bool = Field(
        default=True,
        description="false: the operator never evicts the job's pods for others, and the job never uses more than its"
        " team's guarantee.",
    )
    suspend: bool = Field(
        default=False,
        description="true: the operator deletes the job's pods and creates none. false: the job continues.",
    )
    active_deadline_seconds: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SECONDS,
        description="Seconds with pods on nodes, in all, after which the job is Failed. Time in the queue, in"
        " suspension or in a back-off does not count.",
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        ge=0,
        le=MAX_SECONDS,
        description="Seconds after its end at which the job is deleted. Absent: never.",
    )
    clean_pod_policy: CleanPodPolicy = Field(
        default=CleanPodPolicy.RUNNING, description="Pods deleted when the job has ended: Running, All or None of them."
    )

    @property
    def is_elastic(self) -> bool:
        """Whether the operator's launcher runs the processes, not the image's torchrun."""
        return self.runtime.mode == RuntimeMode.ELASTIC

    def template_of(self, role: str) -> dict[str, Any]:
        """The PodTemplateSpec of `role` ("master" or "worker")."""
        own = self.master if role == ROLE_MASTER else self.worker
        return own.template if own else self.template

    @property
    def minimum(self) -> int:
        """The fewest pods that the job runs with: its smallest allowed size."""
        return min((n for n in self.allowed_replicas or () if n >= self.min_replicas), default=self.min_replicas)

    def sizes(self) -> tuple[int, ...]:
        """The sizes the job may run with, in pods, ascending; 0 (not running) is not listed."""
        if self.allowed_replicas:
            return tuple(sorted({n for n in self.allowed_replicas if self.min_replicas <= n <= self.max_replicas}))
        return tuple(range(self.min_replicas, self.max_replicas + 1, self.replica_step or 1))
