"""What the allocator is told of one job: from what was observed, its allowed sizes and the shapes of its pods."""

from __future__ import annotations

from elastic_operator.api.status import JobStatus
from elastic_operator.plan.model import JobDemand, Member, OwnPod, PodShape
from elastic_operator.plan.observation import Observation, seconds


def demand_of(seen: Observation, *, master: PodShape, worker: PodShape) -> JobDemand:
    """The allocator's view of a job whose spec could be read."""
    job, status, spec = seen.job, seen.status, seen.job.spec
    assert spec is not None, "a job whose spec cannot be read is not the allocator's"
    sizes = spec.sizes() if not seen.finishing else (max(1, len(seen.live)),)
    running = seen.wants_pods and status.target_replicas > 0
    edited = job.generation != status.observed_generation
    return JobDemand(
        uid=job.uid,
        namespace=job.namespace,
        name=job.name,
        priority=job.priority,
        created=job.created,
        sizes=sizes,
        master=master,
        worker=worker,
        members=tuple(member_of(pod) for pod in seen.live),
        taken_indices=_taken_indices(seen),
        holds_place=running,
        free_up_to=max(sizes, default=0) if edited or not running else status.target_replicas,
        grow_after=_grow_after(status, spec.elasticity.scale_up_delay_seconds) if running else 0.0,
        failed_size=status.retry.size if status.retry else None,
        failed_until=seconds(status.retry.not_before) if status.retry else 0.0,
        failed_reason=status.retry.reason if status.retry else "",
        wants=seen.wants_pods and not (seen.finishing and not seen.live),
    )


def member_of(pod: OwnPod) -> Member:
    """A live pod as the allocator sees it."""
    return Member(
        uid=pod.uid,
        role=pod.role,
        index=pod.index,
        node=pod.node,
        requests=pod.requests,
        host_ports=pod.host_ports,
    )


def _grow_after(status: JobStatus, delay_seconds: int) -> float:
    return seconds(status.last_resize_time) + delay_seconds if status.last_resize_time else 0.0


def _taken_indices(seen: Observation) -> frozenset[int]:
    """Worker indices whose pod object exists, living or not, ours or somebody's."""
    own = {pod.index for pod in seen.job.pods if pod.role == "worker"}
    prefix = f"{seen.job.name}-worker-"
    foreign = {int(name.removeprefix(prefix)) for name in seen.job.foreign_names if name.startswith(prefix)}
    return frozenset(own | foreign)
