"""The immutable input of the allocator: nodes, jobs' demands, foreign pods.

`job.py` has the jobs themselves, `decisions.py` the decisions. Times are seconds since the epoch on the API server's
clock, as floats. Resources are integers: cpu in millicores, memory and storage in bytes, everything else (GPUs, pods)
in units.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from json import dumps
from math import inf
from typing import Any, NamedTuple

from elastic_operator.plan.facts.gpus import count_gpus
from elastic_operator.plan.facts.resize_cost import worth_it_after
from elastic_operator.plan.facts.team import DEFAULT_FLAVOR, NO_POLICY, Flavor, Team, Teams
from elastic_operator.plan.facts.text import Reason
from elastic_worker.contract import ROLE_MASTER

Resources = Mapping[str, int]
HostPort = tuple[str, str, int]
"""hostIP ("" = all), protocol, port."""


_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
CORDONED = "cordoned"
_NODE_STATES = {
    "node.kubernetes.io/unschedulable": CORDONED,
    "node.kubernetes.io/not-ready": "NotReady",
    "node.kubernetes.io/unreachable": "NotReady",
    "node.kubernetes.io/out-of-service": "out of service",
    "node.kubernetes.io/disk-pressure": "under DiskPressure",
    "node.kubernetes.io/memory-pressure": "under MemoryPressure",
    "node.kubernetes.io/pid-pressure": "under PIDPressure",
    "node.kubernetes.io/network-unavailable": "without a network",
    "node.cloudprovider.kubernetes.io/uninitialized": "not initialized yet",
    "node.cloudprovider.kubernetes.io/shutdown": "shut down",
}
"""The taints that Kubernetes sets and removes with a node's state, each with the state in words. No new pod is placed
on a node with such a taint, even if the pod tolerates the taint: a kubelet under pressure evicts pods.
"""


def host_port(host_ip: str, protocol: str, number: int) -> HostPort:
    """A port of the node, as a pod requests it."""
    return "" if host_ip == "0.0.0.0" else host_ip, protocol or "TCP", number


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint."""

    key: str
    effect: str
    value: str = ""

    @property
    def keeps_away(self) -> bool:
        """Whether the taint keeps pods away that do not tolerate it."""
        return self.effect in _KEEPS_AWAY

    @property
    def node_state(self) -> str:
        """The state of the node that Kubernetes set the taint for, in words; "" if it was set by somebody else."""
        return _NODE_STATES.get(self.key, "")


@dataclass(frozen=True, slots=True)
class Node:
    """A node, and the resources on it that are used by other pods than the members of our jobs.

    `used` counts every bound pod that has not ended, of any kind and namespace, except the members in the input's jobs
    and except the pods in `leaving`. `leaving` counts our own pods that are being deleted: their resources and host
    ports are not free yet, but will be. `used_by` and `leaving_by` divide the GPUs in these two by owner: namespace ->
    extended resource -> GPUs.
    """

    name: str
    allocatable: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    used: Resources = field(default_factory=dict)
    used_ports: frozenset[HostPort] = frozenset()
    leaving: Resources = field(default_factory=dict)
    leaving_ports: frozenset[HostPort] = frozenset()
    used_by: Mapping[str, Resources] = field(default_factory=dict)
    leaving_by: Mapping[str, Resources] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether the node takes new pods at all (taints aside)."""
        return self.ready and not self.unschedulable

    @property
    def why_closed(self) -> str:
        """What keeps all new pods off the node, in words; "" if nothing does.

        A taint for the node's state may outlive or precede that state by moments.
        """
        if not self.usable:
            return CORDONED if self.unschedulable else "NotReady"
        return next((taint.node_state for taint in self.taints if taint.keeps_away and taint.node_state), "")


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """A pod's use of its node. `gpus` is the number of GPUs in its `requests`."""

    requests: Resources
    gpus: int = 0
    host_ports: frozenset[HostPort] = frozenset()


@dataclass(frozen=True, slots=True)
class PodShape(Load):
    """kube-scheduler's requirements of a node for a pod of one template: room for the pod's load, and more.

    `affinity` is `nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms` as written (a pod fits
    if any term matches; empty = no demand). `pinnable` is False if the planner cannot know everything that the
    scheduler will require (inter-pod affinity, DoNotSchedule spread, unbound or zonal volumes, resource claims, another
    scheduler). The planner then decides the number of such pods, and the scheduler decides their nodes (10).
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[Mapping[str, Any], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    pinnable: bool = True
    unpinned_because: str = ""
    avoided_nodes: frozenset[str] = frozenset()
    """The nodes that its pods avoid (137). Not a part of `affinity`: shapes that differ only in these nodes share what
    the allocation knows about all other nodes.
    """

    def __hash__(self) -> int:
        """Equal for equal shapes, in whatever order their resources, labels and terms are."""
        affinity = dumps(self.affinity, sort_keys=True) if self.affinity else ""
        parts = frozenset(self.requests.items()), frozenset(self.node_selector.items()), affinity, self.tolerations
        return hash((*parts, self.host_ports, self.avoided_nodes))


@dataclass(frozen=True, slots=True)
class JobShape:
    """The requirements that a job's pods have of a node, and the flavor of their GPUs. `job_shape` makes it.

    `flavor` is the kind of GPU that the job uses, "" for a job without GPUs. If the kind is unclear, `flavor_problem`
    says why, in words, and the job gets no new pods. `priorities` are the priorities of the master's pod and of the
    workers' pods, as kube-scheduler sees them.
    """

    master: PodShape
    worker: PodShape
    flavor: str = DEFAULT_FLAVOR
    flavor_problem: str = ""
    priorities: tuple[int, int] = (1, 0)

    @property
    def pinnable(self) -> bool:
        """Whether the planner knows all of kube-scheduler's requirements for the job's pods (10)."""
        return self.master.pinnable and self.worker.pinnable


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

    @property
    def is_lifted_by_edit(self) -> bool:
        """Whether an edit of the job ends the wait at once. Only the first few edits do."""
        return self in (PreemptionBar.PODS_REFUSED, PreemptionBar.REFUSED_AT_CREATION)


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
    def from_load(uid: str, role: str, index: int, node: str | None, load: Load) -> Member:
        """The member with that load."""
        return Member(load.requests, load.gpus, load.host_ports, uid=uid, role=role, index=index, node=node)


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
    wants: bool = True
    """False for a job that may have no pods: suspended, ended or invalid."""
    preemptible: bool = True
    """A job that is not preemptible never exceeds its team's guarantee, and loses no pods to others."""
    preemption_bar: PreemptionBar | None = None
    """Why no pods of others may be preempted for the job; None if they may (139)."""
    may_preempt_at: float = -inf
    """Before this time no pods of others are preempted for the job, because its pods were not placed (139)."""
    running_since: float | None = None
    """When the job last began to run; None: it does not run."""
    waiting_since: float | None = None
    """When the job began to wait for its minimum; None: it does not wait."""
    avoided: tuple[str, ...] = ()
    """A sentence on each node that its pods avoid for a while (137)."""
    provisioning_pods: tuple[Member, ...] = ()
    """Pods that request new nodes from an autoscaler, for the missing part of the minimum (49). They are not members,
    because they hold no GPUs.
    """
    node_request: NodeRequest | None = None
    """When its pods may request new nodes; None: never (49)."""

    @property
    def pods(self) -> tuple[Member, ...]:
        """All its pods: its members and its provisioning pods."""
        return (*self.members, *self.provisioning_pods)

    @property
    def gpus(self) -> int:
        """The GPUs of its members."""
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

    def shape_of(self, role: str) -> PodShape:
        """The requirements of the job's pods of that role."""
        return self.shape.master if role == ROLE_MASTER else self.shape.worker

    def starves_from(self, starvation_seconds: float) -> float:
        """When (epoch seconds) the job has waited too long for its minimum (37); infinity if it does not wait."""
        return inf if self.waiting_since is None else self.waiting_since + starvation_seconds

    def grow_at(self, size: int) -> float:
        """When (epoch seconds) the job may have that size; -inf: at any time. If growth costs work, larger sizes are
        allowed earlier.
        """
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


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """A pending GPU pod that is not ours, for which kube-scheduler has found no room."""

    uid: str
    namespace: str
    name: str
    created: float
    shape: PodShape
    flavor: str = DEFAULT_FLAVOR
    priority: int = 0
    nominated: str = ""
    """The node that kube-scheduler, or another program than this operator, has nominated the pod for."""
    reserved: str = ""
    """The node that the operator has nominated the pod for: the room that is free there, or becomes free, belongs to
    the pod (45).
    """
    preempts: bool = True
    """Whether kube-scheduler itself would evict pods of lower priority for this pod. If so, the operator deletes none
    of these.
    """
    unplannable: str = ""
    """Why no place can be planned for the pod, in words (inter-pod rules, unbound volumes, claims); "" if it can be."""
    gang: str = ""
    """The pods of one gang get all their places in one pass, or none (144); "": no gang."""
    may_be_split: bool = False
    """Whether the gang is served pod by pod if the team has no guarantee for all of it."""
    may_preempt: bool = True
    """Whether pods of others may be preempted for the pod. If not, the pod gets free room only."""

    @property
    def has_reservation(self) -> bool:
        """Whether a place is reserved for the pod."""
        return bool(self.reserved or self.nominated)


NO_LIMIT = 1 << 60


class EvictionLimit(StrEnum):
    """The limits on reclaim, by the names of their settings (138)."""

    PER_TEAM = "reclaim.maxEvictionsPerDecision"
    PER_CLUSTER = "reclaim.maxEvictionsPerMinute"


class PreemptorKey(NamedTuple):
    """The team, and the job, foreign pod or gang of foreign pods, for which pods of others are evicted."""

    team: str
    key: str
    """The uid of the job or the foreign pod, or the name of the gang."""


@dataclass(frozen=True, slots=True)
class EvictionLimits:
    """The most pods of others that may be evicted within a minute (138), for each team and for all together.

    `evicted_last_minute` are the pods (uids) that were deleted for others within the last minute, each with its
    preemptor. A limit is `configured` if somebody has set it. `longest_waiting` is the preemptor that has waited
    longest; `reserved_evictions` of the cluster's limit are reserved for this preemptor.
    """

    per_team: int = NO_LIMIT
    per_cluster: int = NO_LIMIT
    evicted_last_minute: Mapping[str, PreemptorKey] = field(default_factory=dict)
    configured: frozenset[EvictionLimit] = frozenset(EvictionLimit)
    longest_waiting: PreemptorKey | None = None
    reserved_evictions: int = 0

    def withheld_from(self, preemptor: PreemptorKey) -> int:
        """The number of evictions of the cluster's limit that are reserved for another preemptor."""
        return self.reserved_evictions if self.longest_waiting is not None and self.longest_waiting != preemptor else 0


@dataclass(frozen=True, slots=True)
class AllocationSettings:
    """The operator's settings that an allocation depends on.

    `gpu_resources` are the extended resources that count as GPUs: those of all flavors, each once. Every namespace that
    no policy covers is a team called `namespace NAME`, with the rules of `default_team`. If `default_team` has a
    parent, the parent is in `default_parents`, and the GPUs that all these namespaces get together are divided among
    them (111). If a job has waited for `starvation_seconds`, room that becomes free is held for it (37).
    """

    gpu_resources: tuple[str, ...] = ("nvidia.com/gpu",)
    flavors: tuple[Flavor, ...] = (Flavor(),)
    default_team: Team = NO_POLICY
    default_parents: tuple[Team, ...] = ()
    starvation_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class AllocationInputs:
    """Everything that the allocator decides from.

    `teams` are those of the policies, and the `default_parents` of the settings. `team_of` names the team of each
    namespace that a policy covers. `reclaim_stopped` says why no team loses a pod to another team or to foreign pods
    (43); None: they lose no more than the `eviction_limits` allow.
    """

    now: float
    nodes: tuple[Node, ...]
    jobs: tuple[JobDemand, ...]
    settings: AllocationSettings = field(default_factory=AllocationSettings)
    teams: tuple[Team, ...] = ()
    team_of: Mapping[str, str] = field(default_factory=dict)
    foreign_pods: tuple[ForeignPod, ...] = ()
    reclaim_stopped: Reason | None = None
    eviction_limits: EvictionLimits = field(default_factory=EvictionLimits)

    @property
    def reclaiming(self) -> bool:
        """Whether teams may lose pods to other teams and to foreign pods."""
        return self.reclaim_stopped is None

    def find_teams(self) -> Teams:
        """A new index of teams by namespace. The time to make it is proportional to the number of teams."""
        return Teams(self.teams, self.team_of, self.settings.default_team)


def gpus_in(inputs: AllocationInputs) -> int:
    """The GPUs of all nodes in any state."""
    return sum(count_gpus(node.allocatable, inputs.settings.gpu_resources) for node in inputs.nodes)
