"""A job as the allocator sees it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from elastic_operator.plan.facts.decisions import Slot
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.requirements import JobShape, Load
from elastic_operator.plan.facts.resize_cost import worth_it_after


@dataclass(frozen=True, slots=True)
class FailedSize:
    """A size of a job that failed, for the `reason`. It and all larger sizes wait until `until` (epoch seconds)."""

    size: int
    until: float
    reason: str = ""

    def delays(self, size: int, now: float) -> bool:
        """Whether that size still waits."""
        return size >= self.size and now < self.until


class PreemptionBar(StrEnum):
    """Why no pods are preempted for a job for now, in words (139). In any case the job gets idle GPUs."""

    NOT_PLACED = "kube-scheduler repeatedly found no node for the job's pods"
    PODS_REFUSED = "the API server refused the job's pods in a dry run"
    REFUSED_AT_CREATION = "the job's pods passed a dry run and were then refused at their creation, repeatedly"
    EDITED_TOO_OFTEN = "the job was edited many times while its pods were refused"
    OTHERS_FILL_QUOTA = "pods of other jobs of its namespace would fill a ResourceQuota first"
    NO_ANSWER = "the API server does not answer dry runs of pods in the job's namespace"
    INTERNAL_ERROR = "an internal error of the operator stopped work on this job a short time ago"
    GETS_NO_PODS = "the job gets no new pods"
    GANG_INCOMPLETE = "the pod's gang cannot be served as a whole"
    GANG_FIRST = "a large gang on such GPUs gets its nodes first"

    @property
    def is_lifted_by_edit(self) -> bool:
        """Whether an edit of the job ends the wait at once. Only the first few edits do."""
        return self in (PreemptionBar.PODS_REFUSED, PreemptionBar.REFUSED_AT_CREATION)


@dataclass(frozen=True, slots=True)
class Bar:
    """Before `until` (epoch seconds) no pods of others are preempted for a job; infinity: it ends at no known time."""

    why: PreemptionBar
    until: float = inf


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """When (epoch seconds) a job's pods request new nodes from an autoscaler (49): from `begins_at` to `ends_at`.

    `ends_at` is None until a provisioning pod of the job was observed.
    """

    begins_at: float
    ends_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Load):
    """An active pod of the job's present incarnation, not on a lost node.

    `node` is the node that the pod is bound to, else the node that it is pinned to; None for an unpinned pod that waits
    for the scheduler.
    """

    uid: str
    role: str
    index: int
    node: str | None

    @staticmethod
    def at(uid: str, slot: OwnPod | Slot, load: Load) -> Member:
        return Member(
            load.requests, load.gpus, load.host_ports, uid=uid, role=slot.role, index=slot.index, node=slot.node
        )


@dataclass(frozen=True, slots=True)
class JobDemand:
    """One job as the allocator sees it.

    If something is always allowed, the time from which it is allowed is -inf. If something never happened, its time is
    None.
    """

    uid: str
    namespace: str
    name: str
    priority: int
    created: float
    sizes: tuple[int, ...]
    """The allowed sizes in pods, ascending; empty for a job that gets no new pods."""
    shape: JobShape
    """The requirements of its pods, without the nodes that they avoid."""
    members: tuple[Member, ...] = ()
    used_indices: frozenset[int] = frozenset()
    """The worker indices whose pod object exists."""
    is_admitted: bool = False
    """Whether the job runs, or is between two incarnations. Such a job is served with the running jobs of its priority.
    """
    undelayed_size: int = 0
    """Growth up to this size is never delayed: the last granted size, or any size after an edit."""
    may_grow_at: float = -inf
    """Larger sizes than `undelayed_size` wait until this time."""
    resize_cost: float = 0.0
    """The cost of a change of size, in seconds of work of all the job's GPUs. Growth waits until it is worth this cost
    (148). Among jobs of equal priority, the job with the lowest cost loses pods first (170).
    """
    changed_at: float | None = None
    """The last change of the job's size; None if the job has never grown, because its first growth does not wait."""
    failed: FailedSize | None = None
    wants_pods: bool = True
    """False for a job that may have no pods: suspended, ended or invalid."""
    preemptible: bool = True
    """A job that is not preemptible never exceeds its team's guarantee, and loses no pods to others."""
    bar: Bar = Bar(PreemptionBar.NOT_PLACED, until=-inf)
    """Why, and until when, no pods of others may be preempted for the job (139)."""
    yields_until: float = -inf
    """Until this time a job that has lost all its pods to other teams lets large gangs have their nodes first (217)."""
    running_since: float | None = None
    """When the job last began to run; None: it does not run."""
    waiting_since: float | None = None
    """When the job began to wait for its minimum; None: it does not wait."""
    avoided: tuple[str, ...] = ()
    """A sentence on each node that its pods avoid for a while (137)."""
    provisioning_pods: tuple[Member, ...] = ()
    """Pods that request new nodes for the missing part of the minimum (49). They hold no GPUs: they are no members."""
    node_request: NodeRequest | None = None
    """When its pods may request new nodes; None: never (49)."""

    @property
    def pods(self) -> tuple[Member, ...]:
        """All its pods: its members and its provisioning pods."""
        return (*self.members, *self.provisioning_pods)

    @property
    def gpus(self) -> int:
        return sum(member.gpus for member in self.members)

    @property
    def minimum(self) -> int:
        """The smallest size that the job may run with; 0 for a job that gets no new pods (see `sizes`)."""
        return self.sizes[0] if self.sizes else 0

    @property
    def lacks_minimum(self) -> bool:
        """Whether the job has fewer pods than its smallest size."""
        return len(self.members) < self.minimum

    def gpus_of_size(self, size: int) -> int:
        """The GPUs of that size, master included."""
        return self.shape.master.gpus + self.shape.worker.gpus * (size - 1)

    def starves_from(self, starvation_seconds: float) -> float:
        """When (epoch seconds) the job has waited too long for its minimum (37); infinity if it does not wait."""
        return inf if self.waiting_since is None else self.waiting_since + starvation_seconds

    def grow_at(self, size: int) -> float:
        """When (epoch seconds) the job may have that size; -inf: at any time. A larger one may come earlier (148)."""
        if size <= self.undelayed_size:
            return -inf
        if not self.resize_cost or self.changed_at is None:
            return self.may_grow_at
        return max(self.may_grow_at, self.changed_at + worth_it_after(self.resize_cost, self.undelayed_size, size))

    def next_growth(self, now: float) -> float:
        """When (epoch seconds) the job may have further sizes; infinity for never."""
        at = bisect_right(self.sizes, self.undelayed_size)
        free_from = bisect_left(self.sizes, -now, lo=at, key=lambda size: -self.grow_at(size))
        return self.grow_at(self.sizes[free_from - 1]) if free_from > at else inf
