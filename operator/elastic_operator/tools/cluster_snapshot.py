"""One moment of the cluster as data: the whole input of the planner, from which a pass is decided again.

The content of users' pods is left out, except the inputs of decisions: the names and resources of containers, and the
scheduler. The lines that their processes printed are left out, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from elastic_api.job import JobSpec, RoleSpec
from elastic_api.status import JobStatus
from elastic_operator.cluster import objects
from elastic_operator.plan.cluster_view import ClusterView, Reclaim
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings, gpus_in
from elastic_operator.plan.facts.demand import Member, PreemptionBar
from elastic_operator.plan.facts.eviction_limits import EvictionLimits
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.job import Job, OwnPod
from elastic_operator.plan.facts.node import Node
from elastic_operator.plan.facts.requirements import JobShape
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.planner import Planner
from elastic_operator.plan.policies.resolve import Namespace, Policy
from elastic_operator.read.policies import Made

LEFT_OUT = "(left out)"
"""Stands for each line that a process printed: decisions depend on the number of lines."""


@dataclass(frozen=True, slots=True)
class SnapshotJob:
    """A job, and the answers of `plan.cluster_view.ClusterView` about it, by their names there.

    `shape` is None for a job that may have no pods.
    """

    facts: Job
    shape: JobShape | None = None
    assumed: tuple[Member, ...] = ()
    preemption_bar: PreemptionBar | None = None


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The moment. The teams are made from `policies` and `namespaces`. `nodes` have their use by pods, without the pods
    in the demands of jobs, as in `plan.facts.node`. `stopped`, `is_report_only` and `eviction_limits` are
    the answers of `plan.cluster_view.Reclaim`. `priority_classes` are as in the API; a pass reads them no more, since
    each job has its priority, and each shape the lowest one of its pods.
    """

    now: float
    settings: AllocationSettings
    nodes: tuple[Node, ...]
    jobs: tuple[SnapshotJob, ...]
    policies: tuple[Policy, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    priority_classes: tuple[objects.PriorityClass, ...] = ()
    foreign_pods: tuple[ForeignPod, ...] = ()
    stopped: Reason | None = None
    is_report_only: bool = False
    eviction_limits: EvictionLimits = field(default_factory=EvictionLimits)


def snapshot_of(
    view: ClusterView,
    reclaim: Reclaim,
    made: Made,
    priority_classes: Sequence[objects.PriorityClass] = (),
) -> ClusterSnapshot:
    """The cluster at this moment, with the teams `made`."""
    all_obs, inputs = Planner().observe(view)
    return ClusterSnapshot(
        now=view.now,
        settings=view.settings,
        nodes=inputs.nodes,
        jobs=tuple(_job(view, obs) for obs in all_obs.values()),
        policies=made.policies,
        namespaces=made.namespaces,
        priority_classes=tuple(priority_classes),
        foreign_pods=inputs.foreign_pods,
        stopped=reclaim.stopped,
        is_report_only=reclaim.is_report_only,
        eviction_limits=reclaim.eviction_limits(gpus_in(inputs)),
    )


def _job(view: ClusterView, obs: Observation) -> SnapshotJob:
    job = obs.job
    return SnapshotJob(
        facts=replace(
            job,
            status=without_output(job.status),
            spec=without_contents(job.spec) if job.spec is not None else None,
            pods=tuple(map(_without_last_output, job.pods)),
        ),
        shape=view.shape(job) if obs.wants_pods and not job.quarantine else None,
        assumed=view.assumed(job.uid),
        preemption_bar=view.preemption_bar(job),
    )


# -- what is left out --------------------------------------------------------------------------------------------------


def without_output(status: JobStatus) -> JobStatus:
    """The status without the lines that a process printed."""
    last = status.last_failure
    if last is None or not last.log_tail:
        return status
    cut = last.model_copy(update={"log_tail": [LEFT_OUT] * len(last.log_tail)})
    return status.model_copy(update={"last_failure": cut})


def _without_last_output(pod: OwnPod) -> OwnPod:
    last = pod.main.last_output
    if last is None or not last.lines:
        return pod
    return replace(pod, main=replace(pod.main, last_output=replace(last, lines=(LEFT_OUT,) * len(last.lines))))


def without_contents(spec: JobSpec) -> JobSpec:
    """The spec, with only the inputs of decisions in its templates."""
    roles = {name: getattr(spec, name) for name in ("master", "worker")}
    own = {name: RoleSpec(template=_decisive(role.template)) for name, role in roles.items() if role is not None}
    return spec.model_copy(update={"template": _decisive(spec.template), **own})


def _decisive(template: Mapping[str, Any]) -> dict[str, Any]:
    pod = template["spec"]
    kept = ("name", "resources")
    containers = [{key: container[key] for key in kept if key in container} for container in pod["containers"]]
    scheduler = {"schedulerName": pod["schedulerName"]} if pod.get("schedulerName") else {}
    return {"spec": {**scheduler, "containers": containers}}
