"""Makes a job's demand to the allocator, from its observation, its allowed sizes and the shapes of its pods."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from math import inf

from elastic_api.pod_names import parse_pod_name
from elastic_api.status import ChangeReason, ConditionType, Retry, RetryCause
from elastic_operator.plan.facts.demand import Bar, FailedSize, JobDemand, Member, NodeRequest, PreemptionBar
from elastic_operator.plan.facts.pod_shape import excluding_nodes
from elastic_operator.plan.facts.requirements import JobShape
from elastic_operator.plan.facts.resize_cost import has_grown, resize_cost
from elastic_operator.plan.facts.times import seconds
from elastic_operator.plan.facts.waits import YIELD_SECONDS, whole_preemption
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.remaining_pods import member_of
from elastic_operator.plan.job.unplaceable import may_preempt_at
from elastic_worker.contract import ROLE_WORKER


def demand_of(obs: Observation, shape: JobShape) -> JobDemand:
    """The demand of a job whose spec could be read."""
    job, status, spec = obs.job, obs.status, obs.spec
    if obs.avoided:
        master, worker = (excluding_nodes(one, obs.avoided) for one in (shape.master, shape.worker))
        shape = replace(shape, master=master, worker=worker)
    sizes = spec.sizes() if not obs.finishing else (max(1, len(obs.members)),)
    running = obs.wants_pods and status.target_replicas > 0
    failed, lost = status.failed_size, whole_preemption(status)
    reclaimed = lost if lost and lost.reason == ChangeReason.QUOTA_RECLAIMED else None
    resized, delay = status.last_resize_time, spec.elasticity.scale_up_delay_seconds
    edited = job.generation != status.observed_generation
    demand = JobDemand(
        uid=job.uid,
        namespace=job.namespace,
        name=job.name,
        priority=job.context.priority,
        created=job.created,
        sizes=sizes,
        shape=shape,
        members=tuple(member_of(pod) for pod in obs.members),
        used_indices=_used_indices(obs),
        is_admitted=running,
        undelayed_size=max(sizes, default=0) if edited or not running else status.target_replicas,
        may_grow_at=seconds(resized) + delay if running and resized else -inf,
        resize_cost=resize_cost(spec, status) if running else 0.0,
        changed_at=seconds(status.history[0].time) if has_grown(status) and status.history else None,
        failed=_failed_size(failed, shape),
        bar=Bar(PreemptionBar.NOT_PLACED, may_preempt_at(failed)),
        yields_until=seconds(reclaimed.time) + YIELD_SECONDS if reclaimed else -inf,
        wants_pods=obs.wants_pods and not (obs.finishing and not obs.members),
        preemptible=spec.preemptible,
        running_since=seconds(status.turn_started or status.running_since) or None,
        waiting_since=_since_not(obs, ConditionType.ADMITTED, ConditionType.SUSPENDED),
        avoided=tuple(obs.avoided.values()),
        node_request=_node_request(obs),
    )
    return _split_off_provisioning_pods(
        demand, {pod.uid for pod in obs.members if pod.node is None and (pod.unschedulable or shape.pinnable)}
    )


def with_members(demand: JobDemand, members: Sequence[Member]) -> JobDemand:
    """The demand with these further pods of the job, which are being created (48)."""
    indices = frozenset(member.index for member in members if member.role == ROLE_WORKER)
    more = replace(demand, members=(*demand.members, *members), used_indices=demand.used_indices | indices)
    unplaced = {member.uid for member in members if member.node is None}
    return _split_off_provisioning_pods(more, unplaced if demand.shape.pinnable else set())


def _split_off_provisioning_pods(demand: JobDemand, uids: Set[str]) -> JobDemand:
    """The demand in which these pods (uids), which have no node, are provisioning pods instead of members, if they may
    request nodes.

    They may request nodes while the job has fewer other members than its minimum (49).
    """
    members = tuple(member for member in demand.members if member.uid not in uids)
    if demand.node_request is None or len(members) == len(demand.members) or len(members) >= demand.minimum:
        return demand
    provisioning = (*demand.provisioning_pods, *(member for member in demand.members if member.uid in uids))
    return replace(demand, members=members, provisioning_pods=provisioning)


def _since_not(obs: Observation, *conditions: ConditionType) -> float:
    """The latest time at which one of these conditions became False; else the time of the job's creation."""
    known = [obs.status.condition(kind) for kind in conditions]
    since = [c.last_transition_time for c in known if c is not None and c.status == "False"]
    return max((seconds(time) for time in since), default=obs.job.created)


def _failed_size(failed: Retry | None, shape: JobShape) -> FailedSize | None:
    """The smallest size to skip for a while.

    None if only node requests are in back-off and the planner knows all requirements.
    """
    if failed is None:
        return None
    of_nodes = failed.cause is RetryCause.NODES_NOT_PROVISIONED and not shape.pinnable
    size = 1 if of_nodes else failed.size
    return None if size is None else FailedSize(size, seconds(failed.not_before), failed.reason)


def _node_request(obs: Observation) -> NodeRequest | None:
    """When the job may request new nodes: some time after it began to wait, or after its last request brought no node
    (49), and for a limited time. None if it may not request any.

    A job with some of its pods began to wait when it stopped being Ready. While a job is Ready, it has its minimum.
    """
    provisioning, failed = obs.job.provisioning, obs.status.failed_size
    if provisioning is None or obs.finishing:
        return None
    ready = obs.status.condition(ConditionType.READY)
    if ready is not None and ready.status == "True":
        return None
    kinds = (ConditionType.ADMITTED, ConditionType.SUSPENDED, ConditionType.READY)
    begins_at = _since_not(obs, *kinds) + provisioning.delay_seconds
    if failed and failed.cause is RetryCause.NODES_NOT_PROVISIONED:
        begins_at = max(begins_at, seconds(failed.not_before))
    since = [pod.unschedulable_since or pod.created for pod in obs.members if pod.node is None]
    return NodeRequest(begins_at, min(since) + provisioning.timeout_seconds if since else None)


def _used_indices(obs: Observation) -> frozenset[int]:
    """Worker indices for which a pod object exists: live or ended, of this job or of others."""
    own = {pod.index for pod in obs.job.pods if pod.role == ROLE_WORKER}
    foreign = (parse_pod_name(obs.job.name, name) for name in obs.job.foreign_names)
    return frozenset(own | {place[1] for place in foreign if place is not None and place[0] == ROLE_WORKER})
