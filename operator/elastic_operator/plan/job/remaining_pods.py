"""Pods of jobs that get no new pods: other teams may be entitled to their GPUs (99).

Each job with live pods takes part in the allocation. So a borrower cannot keep GPUs by taking its job out of the
allocation. A job whose spec cannot be read any more, or whose next pods are refused, keeps its pods and gets no more. A
job that has ended, or is deleted and kept by a finalizer, is reclaimed before all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from elastic_api.job import CleanPodPolicy
from elastic_api.status import ConditionType
from elastic_operator.plan.facts.demand import Bar, FailedSize, JobDemand, Member, PreemptionBar
from elastic_operator.plan.facts.job import Job, OwnPod
from elastic_operator.plan.facts.requirements import JobShape, PodShape
from elastic_operator.plan.facts.team import Flavor
from elastic_operator.plan.job.observation import Observation
from elastic_worker.contract import ROLE_MASTER

LOWEST_PRIORITY = -(1 << 31) - 1
"""Lower than the value of any PriorityClass."""
NEVER_LARGER = FailedSize(1, inf)
"""For a job that gets no more pods."""


def unwanted_pods(obs: Observation) -> tuple[OwnPod, ...]:
    """Live pods of a job that wants no pods and does not delete them. Another team may be entitled to their GPUs."""
    job = obs.job
    if obs.wants_pods:
        return ()
    if job.deleted:
        return job.active_pods
    if obs.status.finished:
        policy = clean_pod_policy(obs)
        return tuple(pod for pod in job.active_pods if not is_deleted_at_the_end(pod, policy))
    return obs.members if job.spec is None else ()


def clean_pod_policy(obs: Observation) -> CleanPodPolicy:
    """The policy that applies to the pods of a job that has ended."""
    spec, failed = obs.job.spec, obs.status.condition(ConditionType.FAILED)
    policy = spec.clean_pod_policy if spec else CleanPodPolicy.RUNNING
    if policy == CleanPodPolicy.NONE and failed and failed.reason == "DeadlineExceeded":
        return CleanPodPolicy.RUNNING  # otherwise the deadline would have no effect
    return policy


def is_deleted_at_the_end(pod: OwnPod, policy: CleanPodPolicy) -> bool:
    """Whether the pod of a job that has ended is deleted."""
    return policy == CleanPodPolicy.ALL or (policy == CleanPodPolicy.RUNNING and not pod.ended)


def frozen_demand(demand: JobDemand) -> JobDemand:
    """The demand of a job that keeps its pods and gets no more. Others may be entitled to its GPUs.

    Without a master it has no sizes. Otherwise it would get a place for a new master.
    """
    count = len(demand.members)
    sizes = tuple(size for size in demand.sizes if size <= count) or (count,)
    has_master = any(member.role == ROLE_MASTER for member in demand.members)
    return replace(
        demand,
        sizes=sizes if has_master else (),
        provisioning_pods=(),
        node_request=None,
        undelayed_size=count,
        failed=NEVER_LARGER,
        bar=Bar(PreemptionBar.GETS_NO_PODS),
    )


def demand_of_pods(job: Job, pods: Sequence[OwnPod], flavor: str | None) -> JobDemand | None:
    """The demand of a job of which only these pods are known, with GPUs of that flavor; None if they hold no GPUs.

    If the job may still run, its minimum is the smallest size that its pods were made for. Below this size the job is
    stopped as a whole.
    """
    if flavor is None:
        return None
    runs = not (job.deleted or job.status.finished)
    master = next((pod for pod in pods if pod.role == ROLE_MASTER), None)
    worker = next((pod for pod in pods if pod.role != ROLE_MASTER), master)
    assert worker is not None, "the caller passes at least one pod"
    least = min((pod.nnodes[0] for pod in pods if pod.nnodes), default=len(pods))
    return JobDemand(
        uid=job.uid,
        namespace=job.namespace,
        name=job.name,
        priority=job.context.priority if runs else LOWEST_PRIORITY,
        created=job.created,
        sizes=tuple(range(min(least, len(pods)), len(pods) + 1)) if runs and master else (),
        shape=JobShape(_shape_of(master or worker), _shape_of(worker), flavor),
        members=tuple(map(member_of, pods)),
        used_indices=frozenset(pod.index for pod in job.pods if pod.role != ROLE_MASTER),
        is_admitted=True,
        undelayed_size=len(pods),
        failed=NEVER_LARGER,
        bar=Bar(PreemptionBar.GETS_NO_PODS),
    )


def flavor_in_use(
    pods: Sequence[OwnPod], labels: Mapping[str, Mapping[str, str]], flavors: Sequence[Flavor]
) -> str | None:
    """The flavor of the GPUs that these pods hold, by the labels of their nodes; None if they hold none."""
    for pod in pods:
        here = labels.get(pod.node or "")
        for flavor in flavors if here is not None else ():
            if here is not None and flavor.covers(here) and any(map(pod.requests.get, flavor.resources)):
                return flavor.name
    return None


def member_of(pod: OwnPod) -> Member:
    return Member.at(pod.uid, pod, pod)


def _shape_of(pod: OwnPod) -> PodShape:
    return PodShape(pod.requests, pod.gpus, pod.host_ports)
