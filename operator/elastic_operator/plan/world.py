"""What the planner reads of the cluster, and of the rules of reclaim, at one moment."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.decisions import Stopped
from elastic_operator.plan.facts.job import Job, OwnPod
from elastic_operator.plan.facts.job_shape import JobShape
from elastic_operator.plan.facts.snapshot import EvictionLimits, Member, Node, PendingPod, Snapshot
from elastic_operator.plan.policies.resolve import Resolved


class World(Protocol):
    """One moment of the cluster. Facts that have not changed since the last moment are the same objects."""

    @property
    def now(self) -> float:
        """Epoch seconds on the API server's clock."""

    @property
    def policies(self) -> Resolved:
        """What the quota policies amount to: teams, and the namespaces of each."""

    @property
    def empty(self) -> Snapshot:
        """A snapshot with what the settings say, and nothing else."""

    def jobs(self) -> Collection[str]:
        """The uids of all jobs; the same object as long as none comes or goes."""

    def touched(self) -> Collection[str] | None:
        """The jobs (uids) of which something may have changed since the last moment; None: of any."""

    def job(self, uid: str) -> Job:
        """The facts of that job."""

    def unread(self) -> Iterator[str]:
        """The jobs (uids) that were not read yet as they are now, if they are many; each is there when it is named."""

    def shape(self, job: Job) -> JobShape:
        """What the job's pods require of a node."""

    def assumed(self, uid: str) -> tuple[Member, ...]:
        """The pods of that job that are being created."""

    def flavor_held(self, pods: Sequence[OwnPod]) -> str | None:
        """The flavor of the GPUs that these pods hold; None if they hold none."""

    def may_preempt(self, job: Job) -> bool:
        """Whether others may lose pods for the job, by what the API server answered about its pods (139)."""

    def is_trusted(self, job: Job) -> bool:
        """Whether others may lose pods for the job, by the errors of the operator that it has caused."""

    def nodes(self, members: AbstractSet[str], leaving: Sequence[tuple[str, OwnPod]]) -> tuple[Node, ...]:
        """All nodes with what pods use of them, but for `members` (uids), which the demands of jobs have.

        `leaving` are pods that are about to be deleted, with their namespaces.
        """

    def pending_pods(self) -> tuple[PendingPod, ...]:
        """The foreign pods that wait for GPUs."""

    def quarantine(self, uid: str, error: Exception, *, in_allocation: bool = False, given: bool = False) -> bool:
        """The job made the planner raise: its facts say so until it is tried again. False if there is no such job.

        `in_allocation`: the allocation raised the error. `given`: the error came when the job's grant was planned or
        carried out.
        """

    def cannot_tell_demand(self, job: Job, error: Exception) -> None:
        """A job that is quarantined has no demand, because of this error: its pods count as used by others."""

    def quarantine_pod(self, pod: PendingPod, error: Exception) -> None:
        """The foreign pod made the allocation raise: no place is sought for it until it is tried again."""


class Reclaim(Protocol):
    """Whether and how much jobs may take from each other."""

    @property
    def stopped(self) -> Stopped | None:
        """Why nothing is taken; None if jobs may take."""

    @property
    def only_told(self) -> bool:
        """Whether what would be taken is worked out nevertheless."""

    def eviction_limits(self, gpus: int) -> EvictionLimits:
        """The limits on evictions in a cluster with that many GPUs."""

    def next_capacity(self, allocation: Allocation) -> float:
        """Seconds until those whom a limit on evictions keeps waiting may get more."""
