"""The immutable facts of one job as the stores show it, with its pods: what its own plan is made from.

Times are seconds since the epoch on the API server's clock, as floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from elastic_operator.api.job import JobSpec
from elastic_operator.api.status import JobStatus
from elastic_operator.plan.facts.disruption import Disruption
from elastic_operator.plan.facts.launcher_report import Report
from elastic_operator.plan.facts.snapshot import HostPort, Resources

STARTS = ("", "ContainerCreating", "PodInitializing")
"""What the kubelet says of a container that starts: it names no trouble."""


@dataclass(frozen=True, slots=True)
class MainContainer:
    """State of a pod's main container; all None/False before it starts.

    `is_consequence`: from what it said, it failed because another pod had. `script_exit_code` is that of the process
    that failed first in it, negative for a signal, where its log names it. `waiting_container` is the container of the
    pod, itself or one before it, for the reason of which it waits; `waiting_since` when an init container of the pod
    last began or ended, or its volumes and network came to be there, whichever was last. `is_on_its_way`: they are
    there, and the kubelet names no trouble, so an init container runs or an image is pulled.
    """

    running_since: float | None = None
    exit_code: int | None = None
    finished_at: float | None = None
    reason: str = ""
    message: str = ""
    waiting_reason: str = ""
    waiting_message: str = ""
    waiting_container: str = ""
    waiting_since: float | None = None
    is_on_its_way: bool = False
    is_consequence: bool = False
    script_exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class OwnPod:
    """A pod of a job: controlled by the job's uid, in its namespace, under an expected name.

    `disrupted` says in words which cause of the cluster's ended it ("" = none): eviction, preemption, shutdown,
    admission; `refused`: its kubelet never let it begin. `unschedulable` is the scheduler's message while it finds no
    node, `unschedulable_since` since when.
    `nnodes` is the `min:max` frozen in the pod's environment, `template` the fingerprint of what it was made from, ""
    in pods that do not note it. The master of an Elastic job has a `master_epoch`, and `membership` as last told to it;
    `own_secret` is False in pods of Elastic jobs of older releases, whose Secret has no uid in its name.
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
    requests: Resources = field(default_factory=dict)
    gpus: int = 0
    host_ports: frozenset[HostPort] = frozenset()
    main: MainContainer = MainContainer()
    disrupted: str = ""
    refused: bool = False
    unschedulable: str = ""
    unschedulable_since: float | None = None
    nnodes: tuple[int, int] | None = None
    template: str = ""
    pod_ip: str | None = None
    master_epoch: int | None = None
    membership: str = ""
    own_secret: bool = True

    @property
    def ended(self) -> bool:
        """Whether it runs no more and holds no resources."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Group:
    """What the logs of a Torchrun job's pods show, which are read since then: the pods (uids) that are one group.

    No pods where they show none, or one of more or fewer pods.
    """

    asked_since: float
    pods: frozenset[str] = frozenset()


NOBODY_ASKS = Group(-inf)


@dataclass(frozen=True, slots=True)
class Survivors:
    """The running pods that nodes leave which are not Ready, master first, and since when the first of these is so.

    inf where that is not known.
    """

    pods: tuple[OwnPod, ...]
    since: float

    @property
    def uids(self) -> frozenset[str]:
        """Of the pods."""
        return frozenset(pod.uid for pod in self.pods)


@dataclass(frozen=True, slots=True)
class Provisioning:
    """How nodes are asked for: by pods that wait for the scheduler, after a delay and no longer than a limit."""

    delay_seconds: float = 30.0
    timeout_seconds: float = 900.0


@dataclass(frozen=True, slots=True)
class Quiet:
    """Since when nothing has changed from outside (epoch seconds), and whether jobs of the team take turns."""

    since: float
    in_turns: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One job as the stores show it.

    `invalid` is the message for the user where the spec cannot be read; `spec` is then the last one that could, None
    where nobody knows of one. `deleted`: somebody deleted it, and a finalizer keeps it. `unknown_fields` warns of
    fields that this release does not know, `unused_flags` of torchrun's in its templates, `ignored_priority` (reason,
    message) of a PriorityClass that is passed over. `foreign_names` are pod names of this job that somebody else's pods
    bear. `fingerprints` are those that pods of each role must carry. `trouble` says why the last write for this job
    failed, while that is retried, `blocked` why the API server takes no more of its pods for now, `refused` what it
    refused in this generation's pods: it will not take them until the spec changes. `fault` is why the job is set
    aside: the operator met an error of its own at it; `unallocated`: the allocation raised. `provisioning` is there
    where its pods may ask for nodes.
    `report` is what a master of it last said. `heard` is when one last answered, or since when one is asked often,
    whichever is later: None where that is about to begin, -inf where nobody asks. `group` is what the logs of its pods
    show since they are read: None where that is about to begin. `disruption` is there while too many nodes are away for
    any to be given up. `closed` are nodes that pods of it are pinned to and not bound to, and that take none by now,
    each with why. `uncounted` names the devices it asks for that are not counted, `left_out` the priorities in its
    templates that its pods do not get. `grace_ceiling` is the most seconds that a leaving pod of it gets, whatever the
    pod was made with. `start_seconds`: its pods get that long to start on a node, 0 for no
    limit. `unkept` are the fields of its status that the API server drops, since the definition is of an older release.
    `quiet` is there where its size was changed so often that it matters.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    created: float
    status: JobStatus
    spec: JobSpec | None
    invalid: str = ""
    deleted: bool = False
    unknown_fields: str = ""
    unused_flags: str = ""
    priority: int = 0
    ignored_priority: tuple[str, str] = ("", "")
    pods: tuple[OwnPod, ...] = ()
    foreign_names: frozenset[str] = frozenset()
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""
    blocked: str = ""
    refused: str = ""
    fault: str = ""
    unallocated: bool = False
    provisioning: Provisioning | None = None
    report: Report | None = None
    heard: float | None = -inf
    group: Group | None = NOBODY_ASKS
    disruption: Disruption | None = None
    closed: Mapping[str, str] = field(default_factory=dict)
    uncounted: str = ""
    left_out: str = ""
    grace_ceiling: int | None = None
    start_seconds: int = 0
    unkept: frozenset[str] = frozenset()
    quiet: Quiet | None = None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def stands(self) -> str:
        """Why no pods are made for it before somebody edits it; "" if that is not so."""
        return self.invalid or self.refused
