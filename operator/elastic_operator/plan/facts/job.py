"""The immutable facts of one job with its pods, as the stores show it. The job's plan is made from them.

Times are seconds since the epoch on the API server's clock, as floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from elastic_api.job import JobSpec
from elastic_api.status import JobStatus
from elastic_api.what_if import KEEP, ONCE
from elastic_operator.plan.facts.disruption import Disruption
from elastic_operator.plan.facts.launcher_report import Report
from elastic_operator.plan.facts.snapshot import Load
from elastic_operator.plan.facts.text import Reason

STARTS = ("", "ContainerCreating", "PodInitializing")
"""The kubelet's reasons for a container that starts without trouble."""


@dataclass(frozen=True, slots=True)
class LastOutput:
    """What the process printed last that failed first. `pod` is its own, which need not be the one that says this.

    `exit_code` is negative for a signal. `rank` is None and the lines are the whole container's where its log names no
    rank.
    """

    pod: str
    exit_code: int | None
    rank: int | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MainContainer:
    """State of a pod's main container; all None/False before it starts."""

    running_since: float | None = None
    exit_code: int | None = None
    finished_at: float | None = None
    reason: str = ""
    message: str = ""
    waiting_reason: str = ""
    waiting_message: str = ""
    waiting_container: str = ""
    """The container that the pod waits for: this one, or an init container."""
    waiting_since: float | None = None
    """The latest time at which an init container began or ended, or the volumes and network were there."""
    is_on_its_way: bool = False
    """Whether volumes and network are there and the kubelet names no trouble: an init container runs, or an image is
    pulled (136).
    """
    is_consequence: bool = False
    """Whether, by its log, it failed because another pod had failed."""
    script_exit_code: int | None = None
    """The code of the process that failed first in it, negative for a signal, if its log names it."""
    last_output: LastOutput | None = None
    """None until it has failed and its log was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPod(Load):
    """A pod of a job: controlled by the job's uid, in its namespace, under an expected name.

    `disrupted` says in words how the cluster ended it ("" = it did not): eviction, preemption, shutdown, admission.
    `refused`: its kubelet never let it begin. `unschedulable` is the scheduler's message while it finds no node, and
    `unschedulable_since` is the time since when. `gates` are the scheduling gates for whose removal it waits (176).

    `nnodes` is the `min:max` in the pod's environment, `template` the fingerprint of what it was made from (19), "" for
    pods that do not have it. The master of an Elastic job has a `master_epoch`, and `membership` as it was last
    written. `own_secret` is False for pods of Elastic jobs of older releases, whose Secret has no uid in its name (97).
    """

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
    refused: bool = False
    unschedulable: str = ""
    unschedulable_since: float | None = None
    gates: tuple[str, ...] = ()
    nnodes: tuple[int, int] | None = None
    template: str = ""
    pod_ip: str | None = None
    master_epoch: int | None = None
    membership: str = ""
    own_secret: bool = True

    @property
    def ended(self) -> bool:
        """Whether the pod has ended and holds no resources."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def active(self) -> bool:
        """Whether the pod has not ended and is not being deleted, as Kubernetes' own controllers call it."""
        return not self.ended and self.deleting_since is None


@dataclass(frozen=True, slots=True)
class Group:
    """The pods (uids) that form one group by the logs of a Torchrun job's pods, which are read since then (146).

    Empty if the logs show no group, or one of more or fewer pods.
    """

    asked_since: float
    pods: frozenset[str] = frozenset()


NOBODY_ASKS = Group(-inf)


@dataclass(frozen=True, slots=True)
class Survivors:
    """The running pods on Ready nodes, master first, and the time since when the first of the other nodes is not Ready.

    The time is inf if it is not known.
    """

    pods: tuple[OwnPod, ...]
    since: float

    @property
    def uids(self) -> frozenset[str]:
        """The pods' uids."""
        return frozenset(pod.uid for pod in self.pods)


@dataclass(frozen=True, slots=True)
class Provisioning:
    """How new nodes are requested: by pods that wait for the scheduler, after a delay and within a limit (49)."""

    delay_seconds: float = 30.0
    timeout_seconds: float = 900.0


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """The time since when nothing has changed from outside (epoch seconds), and whether jobs of the team take turns
    (143).
    """

    since: float
    in_turns: bool = False


@dataclass(frozen=True, slots=True)
class JobReports:
    """What is reported of a job beside its object and its pods: of writes for it, by its master, by its pods' logs."""

    trouble: str = ""
    """Why the last write for the job failed, while the write is retried."""
    blocked: str = ""
    """Why the API server accepts no more of the job's pods for now (27)."""
    refused: str = ""
    """What the API server refused in the pods of this generation: it will not accept them until the spec changes."""
    report: Report | None = None
    """The last report of one of the job's masters."""
    answered: float | None = -inf
    """When a master last answered, or when the operator began to ask every second, if that is later. None: the operator
    is about to begin; -inf: no master is asked (92).
    """
    group: Group | None = NOBODY_ASKS
    """What the logs of the job's pods show since they are read; None: the reading is about to begin (146)."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """What one job is judged by beside itself and its pods."""

    priority: int = 0
    ignored_priority: Reason | None = None
    """Why the PriorityClass that the job names does not count; None if it does (96)."""
    unready: Mapping[str, float] = field(default_factory=dict)
    """By node of its pods that is not Ready, the time since when; -inf if somebody has tainted the node as out of
    service.
    """
    disruption: Disruption | None = None
    """Set if some nodes are not Ready, and too many are away for any to be given up (86)."""
    misplaced: Mapping[str, str] = field(default_factory=dict)
    """By uid, its unbound pods that their planned node does not take any more, with the reason (142)."""
    grace_ceiling: int | None = None
    """The most seconds that its leaving pods get, whatever they were made with."""
    uncounted: str = ""
    """The devices that the job requests and that are not counted."""
    left_out: str = ""
    """PriorityClasses in its templates that its pods do not get (97)."""
    undisturbed: Undisturbed | None = None
    """Set if the job's size was changed often enough for it to matter (143)."""


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
    """The spec; the last one that could be read if the present one cannot be, None if there is none (99)."""
    invalid: str = ""
    """Why the present spec cannot be read, for the user; "" if it can."""
    deleted: bool = False
    """Whether the job is deleted, and a finalizer keeps it."""
    unknown_fields: str = ""
    """Fields that this release does not know."""
    unused_flags: str = ""
    """Flags of torchrun in the templates that are not used (130)."""
    pods: tuple[OwnPod, ...] = ()
    foreign_names: frozenset[str] = frozenset()
    """Pod names of this job that pods of others have (82)."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """By role, the fingerprint that its pods must have (19)."""
    reports: JobReports = JobReports()
    context: JobContext = JobContext()
    fault: str = ""
    """Why the job is quarantined after an error of the operator's own (88)."""
    unallocated: bool = False
    """Whether the allocation raised that error."""
    provisioning: Provisioning | None = None
    """How the job's pods may request new nodes; None if they may not (49)."""
    start_seconds: int = 0
    """How long its pods have to start on a node; 0 for no limit (136)."""
    dropped_status_fields: frozenset[str] = frozenset()
    """Fields of its status that the API server drops, because its definition is of an older release."""
    what_if: str = ""
    """The value of the annotation by which a suspended job asks what it would get (160)."""

    @property
    def is_what_if(self) -> bool:
        """Whether the job is suspended and asks what it would get if it were not."""
        return self.what_if in (KEEP, ONCE) and self.spec is not None and self.spec.suspend

    @property
    def active_pods(self) -> tuple[OwnPod, ...]:
        """Its pods that have not ended and are not being deleted."""
        return tuple(pod for pod in self.pods if pod.active)

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def needs_edit(self) -> str:
        """Why no pods are made for it before somebody edits it; "" if there is no such reason."""
        return self.invalid or self.reports.refused
