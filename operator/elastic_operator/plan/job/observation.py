"""The observation of one job, and how news is put into its status.

An incarnation is all pods of a job under one rendezvous id. `status.incarnation` names the present one, and a pod with
a lower number is deleted in any case. So raising the number is the whole decision to replace all pods. Any replica of
the operator that reads it later carries out the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from operator import attrgetter
from typing import Unpack

from elastic_api.job import JobSpec
from elastic_api.status import MAX_HISTORY, Change, Condition, ConditionType, JobStatus, StatusFields
from elastic_operator.plan.facts.decisions import DeletePod, Event, EventReason
from elastic_operator.plan.facts.job import Job, OwnPod, Survivors
from elastic_operator.plan.facts.pod_order import master_in
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.facts.times import condition, status_time


class NodeState(Enum):
    """The state of a node that is not Ready."""

    UNDECIDED = "undecided"
    """It has not been away for long enough, or the logs of the other pods are still read (146)."""
    LOST = "lost"
    """It has been away for too long, or is out of service."""
    KEPT = "kept"
    """It would be lost if fewer nodes were away at once (86)."""
    TRAINING = "training"
    """It would be lost if the master did not report that pods there train (92)."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The knowledge of one job in one pass: its members, and its status with the news written into it."""

    job: Job
    status: JobStatus
    members: tuple[OwnPod, ...] = ()
    """The members, master first."""
    to_delete: tuple[DeletePod, ...] = ()
    """Pods that leave for reasons of the job's own, also such as are being deleted already."""
    unready_nodes: Mapping[str, NodeState] = field(default_factory=dict)
    """The nodes of its pods that are not Ready."""
    survivors: Survivors | None = None
    """The pods of a Torchrun job whose logs are read, to see whether they train on (146)."""
    avoided: Mapping[str, str] = field(default_factory=dict)
    """Nodes on which no pod is created now, each with a sentence that says why and until when (137)."""
    no_pods_before: float = 0.0
    """No pods are created before this time."""
    is_in_backoff: bool = False
    """Whether the job takes no part in the allocation until then."""
    finishing: bool = False
    """Whether a worker has ended well, so that the others will end soon."""
    write_status_first: bool = False
    """Whether the status holds a decision that must be written before all other writes."""
    planned_deletions: frozenset[str] = frozenset()
    """The pods (uids) that the plan deletes."""
    events: tuple[Event, ...] = ()
    """The events of this pass."""
    requeue_at: tuple[float, ...] = ()
    """When (epoch seconds) time alone may change the observation, or the plan."""

    @property
    def spec(self) -> JobSpec:
        """The job's spec. Only for jobs whose spec could be read."""
        assert self.job.spec is not None
        return self.job.spec

    def nodes_in(self, state: NodeState) -> list[str]:
        """The nodes in that state, by name."""
        return sorted(node for node, its in self.unready_nodes.items() if its is state)

    def is_lost(self, node: str | None) -> bool:
        return self.unready_nodes.get(node or "") is NodeState.LOST

    def deletion(self, pod: OwnPod, reason: str) -> DeletePod:
        return DeletePod(pod, reason, force=self.is_lost(pod.node))

    def of_ended_incarnation(self, pod: OwnPod) -> DeletePod:
        return self.deletion(pod, f"incarnation {pod.incarnation} is over")

    def again_at(self, *times: float) -> Observation:
        """The observation, which these times (epoch seconds) may change."""
        return replace(self, requeue_at=(*self.requeue_at, *times))

    def with_status(self, **fields: Unpack[StatusFields]) -> Observation:
        """The observation with these fields of the status."""
        return replace(self, status=self.status.model_copy(update=fields))

    def with_condition(self, kind: ConditionType, holds: bool, reason: Reason, now: float) -> Observation:
        """The observation with that condition in its status."""
        return self.with_conditions([(kind, holds, reason)], now)

    def with_conditions(self, answers: Iterable[tuple[ConditionType, bool, Reason]], now: float) -> Observation:
        """The observation with these conditions in its status. Each type occurs once."""
        old: dict[str, Condition] = {one.type: one for one in self.status.conditions}
        new: dict[str, Condition] = {
            kind: condition(old.get(kind), kind, holds, reason, self.job.generation, now)
            for kind, holds, reason in answers
        }
        if all(old.get(kind) == one for kind, one in new.items()):
            return self
        return self.with_status(conditions=sorted((old | new).values(), key=attrgetter("type")))

    def with_change(
        self, now: float, before: int, after: int, reason: str, message: str, *, excused: bool = False
    ) -> Observation:
        """The observation with this change of size in the history of its status."""
        change = Change(
            time=status_time(now), from_=before, to=after, reason=reason, message=message, excused=excused or None
        )
        return self.with_status(history=[change, *self.status.history][:MAX_HISTORY])

    def with_event(self, event: Event) -> Observation:
        return replace(self, events=(*self.events, event))

    def decided(self, event: Event, to_delete: Iterable[DeletePod] = ()) -> Observation:
        """The observation with an event and further pods to delete, whose status is written before all other writes."""
        to_delete, events = (*self.to_delete, *to_delete), (*self.events, event)
        return replace(self, to_delete=to_delete, write_status_first=True, events=events)

    @property
    def wants_pods(self) -> bool:
        """Whether the allocator may give the job pods: not suspended, not ended, not waiting for its next try.

        A job that cannot be read any more, or is held, or whose next pods are refused, may keep its pods.
        """
        spec = self.job.spec
        waits = self.job.needs_edit or self.status.held_until
        over = self.status.finished or self.is_in_backoff or (waits and not self.members)
        return spec is not None and not spec.suspend and not over


def end_incarnation(obs: Observation) -> Observation:
    """The observation with the status by which every present pod is deleted."""
    incarnation, epoch = obs.status.incarnation + 1, obs.status.master_epoch
    obs = obs.with_status(incarnation=incarnation, running_since=None, replicas=0, held_until=None)
    return obs if epoch is None else obs.with_status(master_epoch=epoch + 1, master_lost_time=None)


def fail(obs: Observation, now: float, reason: str, message: str) -> Observation:
    """The job, ended as failed."""
    obs = obs.with_status(completion_time=status_time(now), retry=None, failed_size=None)
    obs = obs.with_condition(ConditionType.FAILED, True, Reason(reason, message), now)
    limit = EventReason.RESTART_LIMIT_REACHED
    return obs.decided(Event(limit if reason == limit else EventReason.FAILED, message, "Warning"))


def replace_all(obs: Observation, event: Event) -> Observation:
    """End the incarnation: delete every present pod."""
    members = [obs.of_ended_incarnation(pod) for pod in obs.members]
    uids = {deletion.uid for deletion in (*obs.to_delete, *members)}
    ended = [obs.deletion(pod, "ended") for pod in present_pods(obs) if pod.ended and pod.uid not in uids]
    return replace(end_incarnation(obs).decided(event, [*members, *ended]), members=(), finishing=False)


def present_pods(obs: Observation) -> list[OwnPod]:
    """The pods of the present incarnation in any state, without a superseded master."""
    own = (p for p in obs.job.pods if p.incarnation == obs.status.incarnation)
    return [p for p in own if not is_superseded(p, obs.status)]


def is_superseded(pod: OwnPod, status: JobStatus) -> bool:
    """Whether the pod is a master of an Elastic job that a newer one replaces, or is about to replace."""
    return pod.master_epoch is not None and pod.master_epoch < (status.master_epoch or 0)


def master_of(obs: Observation) -> OwnPod | None:
    """The master, if it is a member."""
    return master_in(obs.members)


def is_running(pod: OwnPod) -> bool:
    """Whether the pod's main container runs."""
    return pod.main.running_since is not None and pod.main.exit_code is None
