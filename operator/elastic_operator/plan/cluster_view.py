"""The planner's view of the cluster, and of the rules of reclaim, at one moment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings
from elastic_operator.plan.facts.demand import Member, PreemptionBar
from elastic_operator.plan.facts.eviction_limits import EvictionLimits
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.job import FaultStage, Job, OwnPod
from elastic_operator.plan.facts.node import Node
from elastic_operator.plan.facts.requirements import JobShape
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.policies.resolve import ResolvedPolicies


class ClusterView(Protocol):
    """One moment of the cluster. Unchanged facts are the same objects as in the last moment, apart from jobs."""

    @property
    def now(self) -> float:
        """Epoch seconds on the API server's clock."""

    @property
    def policies(self) -> ResolvedPolicies:
        """The teams of the quota policies, and the namespaces of each."""

    @property
    def settings(self) -> AllocationSettings:
        """The settings that allocations depend on."""

    def jobs(self) -> Collection[str]:
        """The uids of all jobs; the same object while no job is created or deleted."""

    def take_dirty(self) -> Collection[str] | None:
        """The jobs (uids) that may have changed since the last call; None: any job may have changed."""

    def read_job(self, uid: str) -> Job:
        """The facts of that job, made anew."""

    def take_unread(self, is_observed: Callable[[str], bool]) -> Generator[str]:
        """The new or changed jobs (uids), if there are many; without those that are deleted meanwhile. `take_dirty`
        leaves them out, unless they change later, or the caller closes the generator before it asks for the next one.
        """

    def shape(self, job: Job) -> JobShape:
        """The requirements that the job's pods have of a node."""

    def assumed(self, uid: str) -> tuple[Member, ...]:
        """The pods of that job that are being created."""

    def flavor_in_use(self, pods: Sequence[OwnPod]) -> str | None:
        """The flavor of the GPUs that these pods hold; None if they hold none."""

    def preemption_bar(self, job: Job) -> PreemptionBar | None:
        """Why no pods may be preempted for the job, by dry runs of the job's own pods (139), and by the errors that it
        has caused in the operator (88); None if they may.
        """

    def nodes(self, members: AbstractSet[str], to_delete: Sequence[OwnPod]) -> tuple[Node, ...]:
        """All nodes with their use by pods, without `members` (uids), which are in the demands of jobs.

        `to_delete` are pods that are about to be deleted.
        """

    def foreign_pods(self) -> tuple[ForeignPod, ...]:
        """The foreign pods that wait for GPUs."""

    def quarantine(self, uid: str, error: Exception, *, stage: FaultStage = FaultStage.READING) -> bool:
        """Leave out a job that has caused an error in the planner. Its facts say so until it is tried again. Returns
        False if there is no such job.
        """

    def note_unknown_demand(self, job: Job, error: Exception) -> None:
        """Report why a quarantined job has no demand, so that its pods count as used by others."""

    def quarantine_pod(self, pod: ForeignPod, error: Exception) -> None:
        """Leave out a foreign pod that has caused an error in the allocation, until it is tried again."""


class Reclaim(Protocol):
    """The rules of reclaim: whether pods may be evicted, and how many."""

    @property
    def stopped(self) -> Reason | None:
        """Why no pods may be evicted; None if pods may be evicted."""

    @property
    def is_report_only(self) -> bool:
        """Whether evictions are only reported, and not carried out (DryRun)."""

    def eviction_limits(self, gpus: int) -> EvictionLimits:
        """The limits on evictions in a cluster with that many GPUs."""

    def seconds_until_capacity(self, allocation: Allocation) -> float:
        """Seconds until the limits allow more evictions to an entry that they stop; infinity for never. Called once for
        each new allocation: the entries that it stops begin to wait.
        """
