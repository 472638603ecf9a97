"""A snapshot as the planner's view of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import inf

from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.demand import Member, PreemptionBar
from elastic_operator.plan.facts.eviction_limits import EvictionLimits
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.job import FaultStage, Job, OwnPod, Quarantined
from elastic_operator.plan.facts.node import Node
from elastic_operator.plan.facts.requirements import JobShape
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.job.remaining_pods import flavor_in_use
from elastic_operator.plan.policies.resolve import resolve
from elastic_operator.tools.cluster_snapshot import ClusterSnapshot


class SnapshotView:
    """A `ClusterView` of one moment, which does not pass. An error at a job quarantines it, as in the operator."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._nodes = snapshot.nodes
        self._labels = {node.name: node.labels for node in snapshot.nodes}
        self._jobs = {job.facts.uid: job for job in snapshot.jobs}
        self._foreign_pods = snapshot.foreign_pods
        self.now, self.settings = snapshot.now, snapshot.settings
        self.policies = resolve(snapshot.policies, snapshot.namespaces, self.settings)

    def jobs(self) -> Collection[str]:
        return self._jobs.keys()

    def take_dirty(self) -> None:
        """Any job may have changed, because there was no moment before."""

    def read_job(self, uid: str) -> Job:
        return self._jobs[uid].facts

    def take_unread(self, is_observed: Callable[[str], bool]) -> Generator[str]:  # noqa: ARG002 - as in ClusterView
        """Nothing is read ahead."""
        yield from ()

    def shape(self, job: Job) -> JobShape:
        shape = self._jobs[job.uid].shape
        assert shape is not None, "the job may have pods"
        return shape

    def assumed(self, uid: str) -> tuple[Member, ...]:
        return self._jobs[uid].assumed

    def flavor_in_use(self, pods: Sequence[OwnPod]) -> str | None:
        return flavor_in_use(pods, self._labels, self.settings.flavors)

    def preemption_bar(self, job: Job) -> PreemptionBar | None:
        return self._jobs[job.uid].preemption_bar

    def nodes(
        self,
        members: AbstractSet[str],  # noqa: ARG002 - unused: the snapshot has the nodes already
        to_delete: Sequence[OwnPod],  # noqa: ARG002 - unused, too
    ) -> tuple[Node, ...]:
        return self._nodes

    def foreign_pods(self) -> tuple[ForeignPod, ...]:
        return self._foreign_pods

    def quarantine(self, uid: str, error: Exception, *, stage: FaultStage = FaultStage.READING) -> bool:
        """Quarantine a job at which the planner raised an error: only its pods count."""
        entry = self._jobs[uid]
        quarantined = Quarantined(f"{type(error).__name__}: {error}", stage is FaultStage.ALLOCATION)
        facts = replace(entry.facts, spec=None, quarantine=quarantined)
        self._jobs[uid] = replace(entry, facts=facts)
        return True

    def note_unknown_demand(self, job: Job, error: Exception) -> None:
        """Nothing: its pods count as used, and a snapshot has no log."""

    def quarantine_pod(self, pod: ForeignPod, error: Exception) -> None:  # noqa: ARG002 - it is left out
        """Quarantine a foreign pod at which the allocation raised an error."""
        self._foreign_pods = tuple(other for other in self._foreign_pods if other.uid != pod.uid)


class SnapshotReclaim:
    """Whether pods could be evicted, and how many."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.stopped: Reason | None = snapshot.stopped
        self.is_report_only = snapshot.is_report_only
        self._eviction_limits = snapshot.eviction_limits

    def eviction_limits(self, gpus: int) -> EvictionLimits:  # noqa: ARG002 - the result is recorded
        return self._eviction_limits

    def seconds_until_capacity(self, allocation: Allocation) -> float:  # noqa: ARG002 - there is no next pass
        """Infinity: there is no next pass."""
        return inf
