"""The facts of one job with its pods, as the stores show them. The job's plan is made from these facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from elastic_api.job import JobSpec
from elastic_api.status import ConditionType, JobStatus
from elastic_api.what_if import KEEP, ONCE
from elastic_operator.plan.facts.group_report import GroupReport
from elastic_operator.plan.facts.node import Unready
from elastic_operator.plan.facts.node_outage import NodeOutage
from elastic_operator.plan.facts.requirements import Load
from elastic_operator.plan.facts.text import Reason
from elastic_worker.contract import ROLE_WORKER

STARTS = ("", "ContainerCreating", "PodInitializing")
"""The kubelet's reasons for a container that starts without trouble."""
SET_BY_OPERATOR = "SetByOperator"
"""The reason of a warning about flags of torchrun that are not used (130)."""


@dataclass(frozen=True, slots=True)
class LastOutput:
    """The last output of the process that failed first. `pod` is the pod of that process; the log of another pod may
    contain it.

    `exit_code` is negative for a signal. If the log names no rank, `rank` is None, and `lines` are the last lines of
    the whole container.
    """

    pod: str
    exit_code: int | None
    rank: int | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MainContainer:
    """The state of a pod's main container. Before the container starts, all fields are None or False."""

    running_since: float | None = None
    exit_code: int | None = None
    finished_at: float | None = None
    reason: str = ""
    message: str = ""
    waiting_reason: str = ""
    waiting_message: str = ""
    waiting_container: str = ""
    """The container that the pod waits for: the main one, or an init container."""
    waiting_since: float | None = None
    """The latest time at which an init container began or ended, or at which volumes and network became ready."""
    is_on_its_way: bool = False
    """Whether volumes and network are ready, and the kubelet reports no trouble: an init container runs, or an image is
    pulled (136).
    """
    is_consequence: bool = False
    """Whether the log shows that the container failed because another pod had failed."""
    script_exit_code: int | None = None
    """The exit code of the first failed process of the container, negative for a signal; None if the log names none."""
    last_output: LastOutput | None = None
    """None until the container has failed and its log was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPod(Load):
    """A pod of a job: controlled by the job's uid, in its namespace, under an expected name."""

    namespace: str
    name: str
    uid: str
    role: str
    index: int
    incarnation: int
    phase: str
    created: float
    node: str | None = None
    bound: bool = False
    bound_since: float | None = None
    deleting_since: float | None = None
    grace_seconds: float = 0.0
    ready: bool = False
    main: MainContainer = MainContainer()
    disrupted: str = ""
    """How the cluster ended the pod, in words: eviction, preemption, shutdown, admission; "" if it did not."""
    refused: bool = False
    """Whether the kubelet did not admit the pod."""
    unschedulable: str = ""
    """The scheduler's message while it finds no node."""
    unschedulable_since: float | None = None
    """When it first found none."""
    scheduler_error: str = ""
    """The scheduler's message while it fails at the pod and tries again (208)."""
    gates: tuple[str, ...] = ()
    """The scheduling gates that must be removed first (176)."""
    nnodes: tuple[int, int] | None = None
    """The `min:max` in the pod's environment; None if the pod has none."""
    template: str = ""
    """The fingerprint of the template that the pod was made from (19); "" if the pod has none."""
    pod_ip: str | None = None
    master_epoch: int | None = None
    """None unless the pod is the master of an Elastic job."""
    membership: str = ""
    """The membership as it was last written to such a master."""
    own_secret: bool = True
    """False for pods of Elastic jobs of older releases, whose Secret has no uid in its name (97)."""

    @property
    def ended(self) -> bool:
        """Whether the pod has ended and holds no resources."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def active(self) -> bool:
        """Whether the pod has not ended and is not being deleted, as Kubernetes' own controllers call it."""
        return not self.ended and self.deleting_since is None


@dataclass(frozen=True, slots=True)
class TorchrunGroup:
    """The pods (uids) of a Torchrun job that form one group, by the logs of these pods. The logs are read since
    `read_since` (146).

    `pods` is empty if the logs show no group, or a group of more or fewer pods.
    """

    read_since: float
    pods: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Survivors:
    """The running pods on Ready nodes, master first, and when the first of the other nodes stopped being Ready."""

    pods: tuple[OwnPod, ...]
    since: float

    @property
    def uids(self) -> frozenset[str]:
        return frozenset(pod.uid for pod in self.pods)


@dataclass(frozen=True, slots=True)
class Provisioning:
    """Requests of new nodes: after `delay_seconds`, pods wait for kube-scheduler for at most `timeout_seconds` (49)."""

    delay_seconds: float = 30.0
    timeout_seconds: float = 900.0


@dataclass(frozen=True, slots=True)
class FlapWindow:
    """The time of the last external change (epoch seconds), and whether the jobs of the team take turns (143)."""

    no_external_change_since: float
    time_sharing: bool = False


@dataclass(frozen=True, slots=True)
class JobFeedback:
    """News of a job beside its object and its pods: from the operator's writes, its master and its pods' logs."""

    write_error: str = ""
    """Why the last write for the job failed, while the write is retried."""
    pods_rejected: str = ""
    """Why the API server accepts no more of the job's pods for now (27)."""
    pods_rejected_until_edit: str = ""
    """Why the API server refuses the pods of this generation. It will not accept them until the spec changes."""
    report: GroupReport | None = None
    """The last report of one of the job's masters."""
    report_pending: bool = False
    """Whether this leader did not see the job's master start, has no report of it, and has not asked it for long. Until
    then the status keeps what the last leader wrote of the group.
    """
    pods_are_asked: bool = False
    """Whether the operator asks the job's master every second and reads its pods' logs, because a node is not Ready.
    What is None below is then about to come.
    """
    last_answer_at: float | None = None
    """When the master last answered, or since when it is asked each second, if that is later; None: it is not (92)."""
    group: TorchrunGroup | None = None
    """The group that the logs of the job's pods show since they are read; None: they are not read (146)."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """The facts outside a job that its plan depends on: nodes, classes, its team."""

    priority: int = 0
    unready: Unready = field(default_factory=dict)
    """The nodes of the job's pods that are not Ready."""
    node_outage: NodeOutage | None = None
    """Set if so many nodes are not Ready that none of them is given up (86)."""
    misplaced: Mapping[str, str] = field(default_factory=dict)
    """The unbound pods (uids) whose planned node takes them no more, each with the reason (142)."""
    evicted_for: Mapping[str, str] = field(default_factory=dict)
    """Evicted pods (uids) that the status still lists as alive, each with the name of its foreign preemptor (203)."""
    grace_ceiling: int | None = None
    """The longest grace of a leaving pod of the job (seconds). It limits the grace in the job's spec."""
    warnings: Mapping[ConditionType, Reason] = field(default_factory=dict)
    """The parts of the job's spec that have no effect, by the condition that says so: unknown fields (99), unused flags
    (130), a class that gives the job no priority (96), classes that the job's pods do not get (97), devices that are
    not counted.
    """
    flap_window: FlapWindow | None = None
    """None unless the job is held, or its size has changed often enough to be held (143)."""
    pruned_status_fields: frozenset[str] = frozenset()
    """Fields of jobs' statuses that the API server drops, because the CRD is of an older release."""

    @property
    def has_own_class(self) -> bool:
        """Whether its pods get the operator's PriorityClass instead of the template's (97)."""
        return ConditionType.POD_PRIORITY_IGNORED in self.warnings


FaultStage = Enum("FaultStage", "READING ALLOCATION GRANT")
"""Where an error at an object came from. GRANT: the job's grant was planned or carried out."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Why an object is quarantined, in words for its user, and whether the error came from the allocation of GPUs, so
    that the object takes no part in the next allocations.
    """

    message: str
    in_allocation: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One job as the stores show it."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: float
    status: JobStatus
    spec: JobSpec | None
    """The spec. If the present one is unreadable, the last readable one; None if there is none (99)."""
    invalid: str = ""
    """Why the present spec is unreadable, in words for the user; "" if it is readable."""
    deleted: bool = False
    """Whether the job is deleted and kept by a finalizer."""
    pods: tuple[OwnPod, ...] = ()
    foreign_names: frozenset[str] = frozenset()
    """Names of this job's pods that foreign pods use (82)."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """The fingerprint that the job's pods must have (19), by role."""
    feedback: JobFeedback = JobFeedback()
    context: JobContext = JobContext()
    quarantine: Quarantined | None = None
    """Set while the job is quarantined after an error of the operator's own (88). Its spec is then None."""
    provisioning: Provisioning | None = None
    """The rules by which the job's pods may request new nodes; None if they may not (49)."""
    start_seconds: int = 0
    """How long the job's pods have to start on a node, in seconds; 0 for no limit (136)."""
    what_if: str = ""
    """The value of the annotation by which a suspended job asks what it would get (160)."""

    @property
    def is_what_if(self) -> bool:
        """Whether the job is suspended and asks what it would get if it were not."""
        return self.what_if in (KEEP, ONCE) and self.is_suspended

    @property
    def is_suspended(self) -> bool:
        return self.spec is not None and self.spec.suspend

    @property
    def is_elastic(self) -> bool:
        """Whether the job runs in Elastic mode; False if its spec is not known."""
        return self.spec is not None and self.spec.is_elastic

    @property
    def active_pods(self) -> tuple[OwnPod, ...]:
        return tuple(pod for pod in self.pods if pod.active)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def needs_edit(self) -> str:
        """Why the job gets no pods before somebody edits it; "" if there is no such reason."""
        return self.invalid or self.feedback.pods_rejected_until_edit


def listed_workers(status: JobStatus) -> frozenset[str]:
    """The workers (uids) that the status lists as alive."""
    alive = (pod.uid for pod in status.pods if pod.role == ROLE_WORKER and pod.is_alive)
    return frozenset(uid for uid in alive if uid is not None)
