"""The status of an `ElasticPyTorchJob`: the operator's report, and its memory across a change of leader.

Times are RFC 3339 in UTC with whole seconds, as everywhere in Kubernetes. An absent field means "none": nothing is
ever null.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypedDict

from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field, PlainSerializer, WithJsonSchema

from elastic_api.job import ApiModel

MAX_LISTED_PODS = 64
MAX_HISTORY = 20
MAX_CONDITIONS = 20
MAX_AVOIDED = 16
MAX_METRICS = 16
MAX_TAIL = 20
MAX_LINE = 500
MAX_LENDERS = 16
MAX_MESSAGE = 4096
"""The most characters of one text. The API server's messages repeat a user's texts, and a status may contain a text
several times: a status that is too large for etcd would never be written.
"""
_KEPT_END = 512
"""The characters that are kept of the end of a text that is too long: the remedy is there."""


def rfc3339(time: datetime) -> str:
    """`time` (aware) as Kubernetes writes times: `2026-01-31T12:00:00Z`."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shortened(text: str) -> str:
    """The text, without its middle if it is longer than MAX_MESSAGE."""
    if len(text) <= MAX_MESSAGE:
        return text
    left_out = f" ... ({len(text)} characters in all) ... "
    return text[: MAX_MESSAGE - _KEPT_END - len(left_out)] + left_out + text[-_KEPT_END:]


Text = Annotated[str, AfterValidator(shortened)]
Time = Annotated[AwareDatetime, PlainSerializer(rfc3339, when_used="json")]


class StatusModel(ApiModel):
    """A status written by a newer operator may hold more than this one knows; that is not an error."""

    model_config = ConfigDict(extra="ignore")


class ConditionType(StrEnum):
    """Condition types of a job."""

    READY = "Ready"
    ADMITTED = "Admitted"
    FULL_SIZE = "FullSize"
    RESIZING = "Resizing"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STALLED = "Stalled"
    NODES_UNREACHABLE = "NodesUnreachable"
    DEVICES_NOT_COUNTED = "DevicesNotCounted"
    PRIORITY_IGNORED = "PriorityIgnored"
    FIELDS_IGNORED = "FieldsIgnored"
    FLAGS_NOT_USED = "FlagsNotUsed"
    POD_PRIORITY_IGNORED = "PodPriorityIgnored"
    PODS_GIVEN_UP = "PodsGivenUp"
    PODS_NOT_STARTED = "PodsNotStarted"
    FLAPPING = "Flapping"


class Phase(StrEnum):
    """Reasons of the condition Ready; the STATUS column."""

    RUNNING = "Running"
    RESIZING = "Resizing"
    DEGRADED = "Degraded"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    QUEUED = "Queued"
    STARTING = "Starting"
    RENDEZVOUSING = "Rendezvousing"
    RESTARTING = "Restarting"
    FAILED = "Failed"
    INVALID_SPEC = "InvalidSpec"
    INTERNAL_ERROR = "InternalError"


class SizeReason(StrEnum):
    """Reasons of the condition FullSize; the LIMITED BY column: why is my job not bigger, or not running?"""

    AT_MAXIMUM = "AtMaximum"
    HIGHER_PRIORITY_JOBS = "HigherPriorityJobs"
    INSUFFICIENT_NODES = "InsufficientNodes"
    GPUS_FRAGMENTED = "GPUsFragmented"
    NODE_SELECTOR_UNSATISFIED = "NodeSelectorUnsatisfied"
    INSUFFICIENT_CPU_OR_MEMORY = "InsufficientCPUOrMemory"
    WAITING_FOR_NODES = "WaitingForNodes"
    SCALE_UP_DELAYED = "ScaleUpDelayed"
    SIZE_NOT_ALLOWED = "SizeNotAllowed"
    SCALE_UP_FAILED = "ScaleUpFailed"
    QUOTA_EXHAUSTED = "QuotaExhausted"
    BORROWING_LIMIT_REACHED = "BorrowingLimitReached"
    BORROWING_DISABLED = "BorrowingDisabled"
    NO_QUOTA_POLICY = "NoQuotaPolicy"
    RECLAIM_TOO_LARGE = "ReclaimTooLarge"
    WOULD_NOT_LAST = "WouldNotLast"
    CHANGED_TOO_OFTEN = "ChangedTooOften"
    FLAVOR_AMBIGUOUS = "FlavorAmbiguous"
    SUSPENDED = "Suspended"


GRANT_SIZE_REASONS = frozenset(SizeReason) - {
    SizeReason.SCALE_UP_FAILED,
    SizeReason.CHANGED_TOO_OFTEN,
    SizeReason.SUSPENDED,
}
"""The reasons that only the allocation of GPUs has. The job's own state may have the others."""

Truth = Literal["True", "False", "Unknown"]


class Condition(StatusModel):
    """A metav1.Condition."""

    type: str = Field(description="The condition's name, such as Ready.")
    status: Truth = Field(description="True, False or Unknown.")
    reason: str = Field(description="The reason, as one CamelCase word.")
    message: Text = Field(default="", description="The reason as a sentence, and a remedy.")
    last_transition_time: Time = Field(description="When the status last changed.")
    observed_generation: int = Field(default=0, description="The metadata.generation that this condition describes.")


class ChangeReason(StrEnum):
    """Reasons of changes of size in a job's history."""

    STARTED = "Started"
    SCALED_UP = "ScaledUp"
    SCALED_DOWN = "ScaledDown"
    QUOTA_RECLAIMED = "QuotaReclaimed"
    PREEMPTED_BY_JOB = "PreemptedByJob"
    WAITING_FOR_NODES = "WaitingForNodes"
    SUSPENDED = "Suspended"
    POD_LOST = "PodLost"
    MASTER_LOST = "MasterLost"


LOST = frozenset({ChangeReason.POD_LOST, ChangeReason.MASTER_LOST})
PREEMPTED = frozenset({ChangeReason.QUOTA_RECLAIMED, ChangeReason.PREEMPTED_BY_JOB})
"""By these changes a job lost pods to others. Their messages name the others."""
DECIDED = frozenset(ChangeReason) - LOST - {ChangeReason.SUSPENDED}
"""The allocation decided on these changes."""


class RetryCause(StrEnum):
    """What went wrong before something is tried again."""

    POD_FAILED = "PodFailed"
    POD_LOST = "PodLost"
    FAILED_CREATE = "FailedCreate"
    UNSCHEDULABLE = "Unschedulable"
    NODES_NOT_PROVISIONED = "NodesNotProvisioned"
    PODS_NOT_STARTED = "PodsNotStarted"


def _cause_in_words(known: dict[str, Any]) -> RetryCause:
    """The cause of a retry without one, derived from its other fields: older releases wrote none, and older definitions
    drop it.
    """
    reason: str = known.get("reason", "")
    if known.get("waits_for"):
        return RetryCause.NODES_NOT_PROVISIONED
    if known.get("size") is None:
        return RetryCause.POD_LOST if " losses in two minutes. " in reason else RetryCause.POD_FAILED
    if reason.lower().startswith("the scheduler cannot place"):
        return RetryCause.UNSCHEDULABLE
    return RetryCause.PODS_NOT_STARTED if " has not started on node " in reason else RetryCause.FAILED_CREATE


class Retry(StatusModel):
    """What waits before it is tried again: the job itself, or a size of it."""

    reason: Text = Field(description="The reason for the wait.")
    not_before: Time = Field(description="When the operator tries again.")
    attempt: int = Field(default=1, description="The number of failed tries in a row; the wait doubles with each.")
    size: int | None = Field(
        default=None,
        description="The smallest size in pods that the operator does not try before then; it tries smaller ones.",
    )
    waits_for: Literal["Nodes"] | None = Field(
        default=None, description="Nodes: the operator requests no new nodes before then; it uses existing ones."
    )
    cause: Annotated[RetryCause, WithJsonSchema({"type": "string"})] = Field(
        default_factory=_cause_in_words,
        description="The reason as one CamelCase word: PodFailed, PodLost, FailedCreate (the API server refuses pods),"
        " Unschedulable (kube-scheduler finds no node), NodesNotProvisioned (no new node came) or PodsNotStarted.",
    )


class PodStatus(StatusModel):
    """One pod of the job."""

    name: str = Field(description="Its name.")
    uid: str | None = Field(
        default=None, description="Its uid, which differs from that of an earlier pod with the same name."
    )
    role: str = Field(description="master or worker.")
    index: int = Field(default=0, description="The number at the end of its name.")
    node: str | None = Field(default=None, description="The node that it is bound to or planned for.")
    phase: str = Field(description="The pod's own phase, or Terminating.")
    gpus: int = Field(default=0, description="GPUs that it requests.")
    rank: int | None = Field(
        default=None, description="The rank of its first training process, in Elastic mode, if known."
    )

    @property
    def is_alive(self) -> bool:
        """Whether the pod had neither ended nor begun to leave when it was listed."""
        return self.phase in ("Pending", "Running")


class Change(StatusModel):
    """One change of size in the job's history."""

    time: Time = Field(description="When the operator decided on it, or noticed the loss.")
    from_: int = Field(alias="from", description="Pods before.")
    to: int = Field(description="Pods after.")
    reason: str = Field(description="The reason, as one CamelCase word.")
    message: Text = Field(default="", description="The reason, as a sentence.")
    pause_seconds: float | None = Field(
        default=None, description="The time without a step, in Elastic mode, once known."
    )
    lost_steps: int | None = Field(
        default=None, description="Steps that the job repeated, in Elastic mode, once known."
    )
    excused: bool | None = Field(
        default=None,
        description="true: the pods were deleted, evicted, or refused by a node that the job now avoids, and later pods"
        " need not wait; or growth was withdrawn before its pods existed.",
    )


Line = Annotated[str, Field(max_length=MAX_LINE)]


class LastFailure(StatusModel):
    """The last failure of the script, or of a pod's main container: the one of its group that came first."""

    time: Time = Field(description="When the container ended.")
    pod: str = Field(description="The pod.")
    rank: int | None = Field(default=None, description="The rank of the training process that failed first, if known.")
    exit_code: int | None = Field(
        default=None, description="Its exit code, or the negative number of the signal that killed it."
    )
    log_tail: list[Line] = Field(
        default_factory=list,
        max_length=MAX_TAIL,
        description="Its last lines of output, at most 20 with 2 kB in all; those of the whole container if the rank is"
        " unknown.",
    )


class AvoidedNode(StatusModel):
    """A node whose kubelet refused pods of the job."""

    name: str = Field(description="The node.")
    until: Time = Field(description="Until when the operator places no pod of the job there.")
    times: int = Field(default=1, description="The number of refusals in a row; the time doubles with each.")
    reason: Text = Field(default="", description="The refused pod, and the kubelet's message.")


class Metric(StatusModel):
    """A metric of the training, as the script reports it."""

    name: str = Field(description="Such as loss.")
    value: str = Field(description="The value as the script wrote it.")


class Training(StatusModel):
    """How far the training is, as the job's own master tells."""

    step: int | None = Field(default=None, description="Optimizer steps done.")
    epoch: int | None = Field(
        default=None, description="Completed passes over the data, if the script uses the library."
    )
    samples_seen: int | None = Field(
        default=None, description="Samples that the training has seen, if the script uses the library."
    )
    last_checkpoint_step: int | None = Field(default=None, description="The step of the newest complete checkpoint.")
    checkpoint_error: str | None = Field(default=None, description="Why checkpoints fail or cannot be detected.")
    goodput: float | None = Field(
        default=None,
        description="The share of time (0 to 1) spent in steps that counted, since the master's first training process"
        " started, if the script uses the library.",
    )
    progress_percentage: int | None = Field(
        default=None,
        description="The completed part of the training (0 to 100), if the script reports it as to a Kubeflow TrainJob."
        " Each Trainer of transformers does.",
    )
    estimated_remaining_seconds: int | None = Field(
        default=None, description="The script's estimate of the remaining time, from lastUpdatedTime on."
    )
    eta: str | None = Field(default=None, description="The same for people, such as 3h20m.")
    metrics: list[Metric] = Field(
        default_factory=list,
        max_length=MAX_METRICS,
        description="Figures that the script reports, such as the loss; at most 16.",
    )
    last_updated_time: Time | None = Field(default=None, description="When the master reported this.")


class Lender(StatusModel):
    """A quota policy whose idle guarantee the job would use."""

    policy: str = Field(description="Its name.")
    gpus: int = Field(description="The most of the team's GPUs that the job would use; the team may take them back.")


class Forecast(StatusModel):
    """What a suspended job would get now, if it were not suspended."""

    observed_generation: int = Field(default=0, description="The metadata.generation of the question.")
    answered_time: Time = Field(description="The time for which the answer holds.")
    fits: bool = Field(description="Whether its minimum would start.")
    replicas: int = Field(default=0, description="Pods that it would get.")
    gpus: int = Field(default=0, description="GPUs of these pods.")
    limit: str = Field(
        default="", description="What would limit it, as one CamelCase word, as in the condition FullSize."
    )
    message: Text = Field(default="", description="The same as a sentence.")
    reclaimed_gpus: int = Field(
        default=0,
        description="GPUs of running pods, of its own team or of others, that the operator would first have to evict"
        " for it.",
    )
    borrowed_gpus: int = Field(default=0, description="GPUs that it would use beyond its team's guarantee.")
    borrows: list[Lender] = Field(
        default_factory=list,
        max_length=MAX_LENDERS,
        description="Policies whose idle guarantee it would use, at most 16.",
    )


class QueuePosition(StatusModel):
    """Where the job stands among those that wait for their minimum."""

    position: int = Field(
        description="1: next among the jobs of its team that wait for the same kind of GPU. Rounded up from 11 on: only"
        " the first digit is exact. A smaller job may start before it."
    )
    estimated_start_time: Time | None = Field(
        default=None,
        description="When its minimum starts, if running jobs end at their announced times and nothing else happens."
        " Absent if no known end would let it start.",
    )
    confidence: float | None = Field(
        default=None,
        description="The share (0 to 1) of the GPUs in use, of its kind, that belongs to jobs with a known end.",
    )


class JobStatus(StatusModel):
    """The status of an `ElasticPyTorchJob`."""

    observed_generation: int = Field(default=0, description="The metadata.generation that this status describes.")
    replicas: int = Field(
        default=0,
        description="The job's active pods: those that have not ended and are not being deleted, even if they do not"
        " run yet. Autoscalers read this number.",
    )
    target_replicas: int = Field(default=0, description="Pods that the operator grants the job now.")
    ready_replicas: int = Field(default=0, description="Active pods whose containers are all ready.")
    world_size: int = Field(
        default=0,
        description="Training processes: in Elastic mode those of the group that the master reports, otherwise those of"
        " the pods whose main container runs.",
    )
    gpus: int = Field(default=0, description="GPUs that the job's pods hold.")
    selector: str = Field(default="", description="Label selector of the job's pods, for autoscalers.")
    incarnation: int = Field(
        default=0, description="The operator increments it when it replaces all pods; the rendezvous id contains it."
    )
    master_epoch: int | None = Field(
        default=None,
        description="The number of the present or next master, in Elastic mode; pods obey only the newest master.",
    )
    master_lost_time: Time | None = Field(
        default=None, description="Since when the other pods wait for a new master, in Elastic mode."
    )
    membership_generation: int | None = Field(
        default=None,
        description="The number of the latest group of processes, in Elastic mode; each incarnation counts from 1.",
    )
    restarts: int = Field(default=0, description="Unplanned changes: failures and lost pods.")
    resizes: int = Field(default=0, description="Planned changes of size.")
    failures: int = Field(
        default=0,
        description="Failures in a row; reset by progress, or after ten minutes of running if progress is unknown.",
    )
    total_failures: int = Field(default=0, description="Failures in all.")
    checkpoint_at_failure: int | None = Field(
        default=None, description="The latest checkpoint at any of the failures in a row."
    )
    step_at_failure: int | None = Field(default=None, description="The latest step at any of the failures in a row.")
    start_time: Time | None = Field(default=None, description="When the operator first granted the job pods.")
    active_seconds: int | None = Field(
        default=None, description="Seconds with pods on nodes, up to the last time it had none."
    )
    active_since: Time | None = Field(default=None, description="Since when the job has pods on nodes.")
    completion_time: Time | None = Field(default=None, description="When the job ended.")
    last_resize_time: Time | None = Field(default=None, description="When the last change of size completed.")
    running_since: Time | None = Field(
        default=None,
        description="Since when the job's minimum runs. Absent while fewer pods run, or while a new master is awaited.",
    )
    turn_started: Time | None = Field(
        default=None, description="When the job last started from 0 pods. Its turn began then, if jobs take turns."
    )
    retry: Retry | None = Field(
        default=None, description="When the job restarts, or gets its next pods, after failures or losses."
    )
    failed_size: Retry | None = Field(
        default=None,
        description="The unavailable size, or the missing new nodes, and when the operator tries again.",
    )
    held_until: Time | None = Field(
        default=None,
        description="Until when the operator holds the job at its size, because the size changed too often without a"
        " cause.",
    )
    waits_ended_by_edits: int | None = Field(
        default=None,
        description="The number of edits that have ended a wait of the job since it last ran for ten minutes; a sixth"
        " does not.",
    )
    last_failure: LastFailure | None = Field(
        default=None, description="The last failure, with the last lines of output; it stays after the pod's deletion."
    )
    avoided_nodes: list[AvoidedNode] = Field(
        default_factory=list,
        max_length=MAX_AVOIDED,
        description="Nodes whose kubelets recently refused pods of the job.",
    )
    training: Training | None = Field(default=None, description="The progress of the training, in Elastic mode.")
    queue: QueuePosition | None = Field(
        default=None, description="Its place in the queue, while it waits for its minimum. May be minutes old."
    )
    forecast: Forecast | None = Field(
        default=None, description="What it would get, if it is suspended and has the annotation what-if."
    )
    pods: list[PodStatus] = Field(
        default_factory=list, max_length=MAX_LISTED_PODS, description="The job's pods, at most 64 of them."
    )
    pods_not_listed: int = Field(default=0, description="The number of pods that the list omits.")
    history: list[Change] = Field(
        default_factory=list, max_length=MAX_HISTORY, description="Changes of size, newest first, at most 20."
    )
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=MAX_CONDITIONS,
        description="Ready (its reason is the STATUS column), FullSize (its reason is the job's limit) and others.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )

    def model_post_init(self, context: object, /) -> None:
        """Put a failed size into its own field: it is in `retry` if an older release wrote the status, or if the
        definitions are older (154).
        """
        super().model_post_init(context)
        if self.retry is not None and self.retry.cause not in (RetryCause.POD_FAILED, RetryCause.POD_LOST):
            object.__setattr__(self, "failed_size", self.failed_size or self.retry)
            object.__setattr__(self, "retry", None)

    def condition(self, type_: ConditionType) -> Condition | None:
        """The condition of that type, if there is one."""
        return next((c for c in self.conditions if c.type == type_), None)

    @property
    def finished(self) -> bool:
        """Whether the job has ended, well or badly. That is final."""
        return self.completion_time is not None


class StatusFields(TypedDict, total=False):
    """Some fields of a JobStatus, with new values: `model_copy` does not check their names and types, but mypy does."""

    observed_generation: int
    replicas: int
    target_replicas: int
    ready_replicas: int
    world_size: int
    gpus: int
    selector: str
    incarnation: int
    master_epoch: int | None
    master_lost_time: Time | None
    membership_generation: int | None
    restarts: int
    resizes: int
    failures: int
    total_failures: int
    checkpoint_at_failure: int | None
    step_at_failure: int | None
    start_time: Time | None
    active_seconds: int | None
    active_since: Time | None
    completion_time: Time | None
    last_resize_time: Time | None
    running_since: Time | None
    turn_started: Time | None
    retry: Retry | None
    failed_size: Retry | None
    held_until: Time | None
    waits_ended_by_edits: int | None
    last_failure: LastFailure | None
    avoided_nodes: list[AvoidedNode]
    training: Training | None
    queue: QueuePosition | None
    forecast: Forecast | None
    pods: list[PodStatus]
    pods_not_listed: int
    history: list[Change]
    conditions: list[Condition]
