"""The writes of a plan: the pods to delete and to create, and the status with its conditions and counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from math import inf

from elastic_api.nnodes import frozen_nnodes
from elastic_operator.plan.facts.decisions import DeletePod, Grant, NewPods, Plan, Route, Slot
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.pod_order import release_order
from elastic_operator.plan.job.conditions import with_conditions
from elastic_operator.plan.job.counts import with_counts
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.pending_reasons import scheduler_deadlines
from elastic_operator.plan.job.resize import why_smaller
from elastic_worker.contract import ROLE_MASTER


def make_plan(
    obs: Observation, grant: Grant | None, deletes: tuple[DeletePod, ...], creates: NewPods | None, now: float
) -> Plan:
    """The plan with these deletions and creations, and the status that follows from them and from the observation."""
    obs = replace(obs, planned_deletions=frozenset(pod.uid for pod in deletes))
    status = _for_older_crd(with_conditions(with_counts(obs, now), grant, now)).status
    if status == obs.job.status:
        status = obs.job.status  # a leader keeps the statuses of all jobs and of their last plans: one object (191)
    due = (*obs.requeue_at, *scheduler_deadlines(obs), obs.no_pods_before, grant.requeue_at if grant else inf)
    return Plan(
        status=status,
        write_status_first=obs.write_status_first,
        deletes=deletes,
        creates=creates,
        events=obs.events,
        route=next((Route(p.pod_ip, p.node or "") for p in obs.members if p.role == ROLE_MASTER and p.pod_ip), Route()),
        requeue_at=min((time for time in due if time > now), default=inf),
    )


def _for_older_crd(obs: Observation) -> Observation:
    """The status for a custom resource definition of an older release, which drops `failedSize`: the wait that ends
    last is in `retry`, and is read from there (154).
    """
    failed, retry = obs.status.failed_size, obs.status.retry
    if "failedSize" not in obs.job.context.pruned_status_fields or failed is None:
        return obs
    return obs.with_status(retry=failed if retry is None else max(failed, retry, key=lambda one: one.not_before))


def deletes_of(obs: Observation) -> tuple[DeletePod, ...]:
    """The deletions for reasons of the job's own. On a lost node a pod that is being deleted is deleted again, without
    its grace; if it then stays, a finalizer keeps it.
    """
    return tuple(
        one for one in obs.to_delete if one.pod.deleting_since is None or (one.force and one.pod.grace_seconds)
    )


def deletes_of_released(pods: Iterable[OwnPod], release: Collection[str], why: str) -> tuple[DeletePod, ...]:
    """The deletions of the released pods (uids): highest worker index first, the master last."""
    return tuple(DeletePod(pod, why) for pod in release_order(pod for pod in pods if pod.uid in release))


def reclaimed(obs: Observation, grant: Grant | None) -> tuple[DeletePod, ...]:
    """Deletions of the job's pods whose GPUs another team is entitled to. The job gets no new pods (99)."""
    if grant is None:
        return ()
    return deletes_of_released(obs.job.pods, grant.assignment.release, why_smaller(grant).message)


def pods_to_create(obs: Observation, slots: Sequence[Slot], *, membership: str = "") -> NewPods | None:
    """A pod for each slot by the job's present spec, to be created, or only tried before others are preempted (139);
    None without slots, or if the spec cannot be read.

    All pods of an incarnation have the `min:max` of its first pods in their environment (11). All have their token from
    an older release's Secret if any of them has (97).
    """
    if obs.job.spec is None or not slots:
        return None
    present = [pod for pod in obs.job.pods if pod.incarnation == obs.status.incarnation]
    nnodes = next((pod.nnodes for pod in obs.members if pod.nnodes), None) or frozen_nnodes(obs.job.spec)
    return NewPods(
        tuple(slots),
        incarnation=obs.status.incarnation,
        nnodes=nnodes,
        master_epoch=obs.status.master_epoch or 0,
        membership=membership,
        old_secret=not all(pod.own_secret for pod in present),
        own_class=obs.job.context.has_own_class,
    )
