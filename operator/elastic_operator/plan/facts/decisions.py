"""Decisions: assignments and grants for all jobs (`allocation`), and the plan of a pass for a job (`reconcile`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from elastic_api.pod_names import pod_name
from elastic_api.status import JobStatus
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.text import Reason


@dataclass(frozen=True, slots=True)
class Slot:
    """A pod to create. `node` None: kube-scheduler chooses (10). `ready`: its room is free now, and not only soon."""

    role: str
    index: int
    node: str | None
    ready: bool

    def pod_name(self, job_name: str) -> str:
        return pod_name(job_name, self.role, self.index)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The pods of one job. `keep` and `release` together are its members and its provisioning pods, by uid; `create`
    are its missing pods.
    """

    keep: tuple[str, ...]
    release: tuple[str, ...]
    create: tuple[Slot, ...]

    @property
    def replicas(self) -> int:
        """The size of the job: 0, an allowed size, or less than the minimum.

        A job has less than the minimum only after it has lost pods. It then keeps its other pods and creates none, as
        long as no other job needs their room (16).
        """
        return len(self.keep) + len(self.create)


@dataclass(frozen=True, slots=True)
class Grant:
    """An `Assignment` with its reasons."""

    assignment: Assignment
    target_replicas: int
    """The size that the status shows: that of the assignment, except while releases are deferred (139)."""
    size_reason: Reason
    """Why the job is not bigger, or does not run; its code is a `SizeReason`."""
    requeue_at: float = inf
    """When (epoch seconds) time alone may change this reason; infinity for never."""
    preemptors: Mapping[str, str] = field(default_factory=dict)
    """The job releases pods for these: uid to name."""
    reclaimed: bool = False
    """Whether some preemptors are of other teams."""
    only_for_foreign_pods: bool = False
    """Whether each released pod is evicted for a foreign pod, whose reservation names it before."""
    victim_jobs: Mapping[str, str] = field(default_factory=dict)
    """Other teams' jobs that lose pods for the job: uid to name."""

    @property
    def message(self) -> str:
        return self.size_reason.message


@dataclass(frozen=True, slots=True)
class Nomination:
    """A node for a foreign pod, and the pods (by uid) that must leave it first (41).

    `uid`, `namespace` and `name` are the foreign pod's. `evicts_from` are the jobs that lose the victims: uid to name.
    If there are no victims, there is room now or soon. `reserved` is the node of the pod's present reservation; `gang`
    is the pod's gang ("": none).
    """

    uid: str
    namespace: str
    name: str
    node: str
    victims: tuple[str, ...] = ()
    evicts_from: Mapping[str, str] = field(default_factory=dict)
    reserved: str = ""
    gang: str = ""

    @property
    def is_new(self) -> bool:
        """Whether the pod must first be nominated for this node."""
        return self.node != self.reserved


@dataclass(frozen=True, slots=True)
class NewPods:
    """Create a pod for each of the `slots`, at least one, for `incarnation` and with `nnodes` in its environment.

    In Elastic mode the environment also has the `master_epoch`, and the master's pod has the annotation `membership`.
    `old_secret`: the pods join pods of an older release, and use their Secret. `own_class`: the pods have the
    operator's PriorityClass instead of the template's (97).
    """

    slots: tuple[Slot, ...]
    incarnation: int
    nnodes: tuple[int, int]
    master_epoch: int = 0
    membership: str = ""
    old_secret: bool = False
    own_class: bool = False

    def __post_init__(self) -> None:
        assert self.slots, "without a pod to create there are no NewPods"

    @property
    def roles(self) -> Counter[str]:
        """The number of pods of each role."""
        return Counter(slot.role for slot in self.slots)


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete exactly that pod (UID precondition). `force`: its node is lost, so its grace is 0."""

    pod: OwnPod
    reason: str
    force: bool = False

    @property
    def name(self) -> str:
        return self.pod.name

    @property
    def uid(self) -> str:
        return self.pod.uid


class EventReason(StrEnum):
    """Reasons of events, most of them on jobs. Some have the word of a `ChangeReason`, a `SizeReason` or a
    `ConditionType` that the job gets at the same time.
    """

    SCALED_UP = "ScaledUp"
    """Also a job's start."""
    SCALED_DOWN = "ScaledDown"
    """Also a suspension."""
    WAITING_FOR_NODES = "WaitingForNodes"
    SCALE_UP_BLOCKED = "ScaleUpBlocked"
    """Pods are refused, get no node, or would be refused."""
    QUOTA_RECLAIMED = "QuotaReclaimed"
    """On a job that loses pods to another team, and on a preemptor: a job, or a foreign pod."""
    PREEMPTED_BY_JOB = "PreemptedByJob"
    """By a job of the same team."""
    RECLAIM_TOO_LARGE = "ReclaimTooLarge"
    """On a preemptor, also a foreign pod, for which more pods would be evicted than a limit ever allows."""
    WOULD_RECLAIM = "WouldReclaim"
    """The same as QuotaReclaimed, where `reclaim.mode` is DryRun."""
    RESERVATION_EXPIRED = "ReservationExpired"
    """On a foreign pod that was not bound in time to the node that it was nominated for."""
    NO_ROOM_FOR_GANG = "NoRoomForGang"
    """On one pod of a gang of foreign pods."""

    POD_LOST = "PodLost"
    NODE_LOST = "NodeLost"
    MASTER_REPLACED = "MasterReplaced"
    PODS_PLANNED_ANEW = "PodsPlannedAnew"
    """The planned node of pods that are not bound has closed or filled (142)."""
    NEW_INCARNATION = "NewIncarnation"
    """All pods are replaced."""
    GENERATION_FORMED = "GenerationFormed"
    """The launchers of an Elastic job have formed a group."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    RESTART_LIMIT_REACHED = "RestartLimitReached"
    WRITE_FAILED = "WriteFailed"
    """The API server has refused a write for the job several times."""

    NODES_UNREACHABLE = "NodesUnreachable"
    """This one and the following: the condition of that name becomes True."""
    DEVICES_NOT_COUNTED = "DevicesNotCounted"
    PRIORITY_IGNORED = "PriorityIgnored"
    FIELDS_IGNORED = "FieldsIgnored"
    FLAGS_NOT_USED = "FlagsNotUsed"
    POD_PRIORITY_IGNORED = "PodPriorityIgnored"
    PODS_GIVEN_UP = "PodsGivenUp"
    PODS_NOT_STARTED = "PodsNotStarted"
    FLAPPING = "Flapping"


@dataclass(frozen=True, slots=True)
class Event:
    """An event on a job or a foreign pod: `type` is Normal or Warning."""

    reason: EventReason
    message: str
    type: str = "Normal"


@dataclass(frozen=True, slots=True)
class Route:
    """The address and node of the master that the job's Service leads to (6, 7); both "" for no master."""

    address: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Membership:
    """The pods that take part in an Elastic job: `text` is written into an annotation of the master with that uid."""

    name: str
    uid: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The writes of one pass for one job, in this order: status if `write_status_first`, deletes, creates, status,
    events.

    `membership` is written to the master of an Elastic job at the same time as the deletes.

    `write_status_first` is set when the status records a decision from which the other writes follow (a new
    incarnation, an end). A replica that takes over must find the decision before it finds the traces of these writes
    (25). `route` is the required target of the job's Service; None leaves it as it is.
    """

    status: JobStatus
    write_status_first: bool = False
    deletes: tuple[DeletePod, ...] = ()
    creates: NewPods | None = None
    events: tuple[Event, ...] = ()
    delete_job: bool = False
    route: Route | None = None
    membership: Membership | None = None
    requeue_at: float = inf
    """When (epoch seconds) time alone may change this plan; infinity for never."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The pods to create."""
        return self.creates.slots if self.creates else ()
