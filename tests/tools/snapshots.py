"""Builds snapshots of clusters whose jobs run, or wait, as the inputs of the allocator's tests say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from elastic_api.job import JobSpec
from elastic_api.status import JobStatus
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings
from elastic_operator.plan.facts.demand import JobDemand, Member
from elastic_operator.plan.facts.job import Job, JobContext, MainContainer, OwnPod, Provisioning
from elastic_operator.plan.facts.node import Node
from elastic_operator.plan.facts.times import status_time
from elastic_operator.tools.cluster_snapshot import ClusterSnapshot, SnapshotJob, without_contents
from elastic_operator.tools.decisions import decide
from tests.api.jobs import make_template, with_gpus
from tests.plan.allocate.world import NOW, make_job, make_node


def make_cluster_snapshot(
    nodes: Iterable[Node], jobs: Iterable[JobDemand | SnapshotJob], **more: Any
) -> ClusterSnapshot:
    """A snapshot with these jobs; of those that are given as demands, the members run."""
    made = tuple(job if isinstance(job, SnapshotJob) else recorded(job) for job in jobs)
    return ClusterSnapshot(
        now=more.pop("now", NOW), settings=AllocationSettings(), nodes=tuple(nodes), jobs=made, **more
    )


def recorded(demand: JobDemand, **more: Any) -> SnapshotJob:
    """The job that demands this, with what was last said of it."""
    size = len(demand.members)
    status = JobStatus(observed_generation=1)
    if size:
        running = {"target_replicas": size, "replicas": size, "running_since": status_time(demand.created)}
        status = JobStatus(incarnation=1, start_time=status_time(demand.created), observed_generation=1, **running)
    facts = Job(
        namespace=demand.namespace,
        name=demand.name,
        uid=demand.uid,
        generation=1,
        created=demand.created,
        status=status,
        spec=_spec(demand),
        context=JobContext(priority=demand.priority),
        pods=tuple(_pod(demand, member) for member in demand.members),
    )
    return SnapshotJob(replace(facts, **more), demand.shape)


def waiting_for_nodes() -> ClusterSnapshot:
    """A full node, and the job `a` whose two pods request new nodes from an autoscaler."""
    job = recorded(make_job("a", 2, 2, on="n1 n1"), provisioning=Provisioning(delay_seconds=0, timeout_seconds=600))
    waiting = {"node": None, "bound": False, "ready": False, "phase": "Pending", "main": MainContainer()}
    facts = replace(
        job.facts,
        pods=tuple(replace(pod, **waiting) for pod in job.facts.pods),
        status=job.facts.status.model_copy(update={"running_since": None}),
    )
    return make_cluster_snapshot([make_node("n1", 0)], [replace(job, facts=facts)])


def at_rest(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The snapshot after the operator has said of each job what there is to say."""
    told = {decision.job.uid: decision.plan.status for decision in decide(snapshot).jobs}
    jobs = (replace(job, facts=replace(job.facts, status=told[job.facts.uid])) for job in snapshot.jobs)
    return replace(snapshot, jobs=tuple(jobs))


def _spec(demand: JobDemand) -> JobSpec:
    fields = {"minReplicas": demand.sizes[0], "maxReplicas": demand.sizes[-1]}
    spec = JobSpec.model_validate({**fields, "template": make_template(with_gpus(demand.shape.worker.gpus))})
    return without_contents(spec)


def _pod(demand: JobDemand, member: Member) -> OwnPod:
    return OwnPod(
        namespace=demand.namespace,
        name=f"{demand.name}-{member.role}-{member.index}",
        uid=member.uid,
        role=member.role,
        index=member.index,
        incarnation=1,
        phase="Running",
        created=demand.created,
        node=member.node,
        bound=True,
        ready=True,
        requests=member.requests,
        gpus=demand.shape.of(member.role).gpus,
        main=MainContainer(running_since=demand.created),
        nnodes=(demand.sizes[0], 4096),
    )
