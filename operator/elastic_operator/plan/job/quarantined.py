"""A job that is quarantined after an error of the operator's own (88). Its pods continue, and others may reclaim its
GPUs.

Decisions about the job use as little as possible: its name, its pods, and its last good demand.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from elastic_api.status import ChangeReason, ConditionType, Phase
from elastic_operator.plan.facts.decisions import Plan
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.job import Job, OwnPod
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.job.observation import Observation, end_incarnation
from elastic_operator.plan.job.plan_writes import deletes_of_released
from elastic_operator.plan.job.remaining_pods import frozen_demand, member_of
from elastic_worker.contract import ROLE_WORKER


def demand_in_quarantine(last: JobDemand, pods: Sequence[OwnPod]) -> JobDemand | None:
    """The last good demand, with the present pods. Others may be entitled to these, and the job never gets more.

    None if no pod is left.
    """
    active = [pod for pod in pods if pod.active]
    if not active:
        return None
    indices = frozenset(pod.index for pod in pods if pod.role == ROLE_WORKER)
    return frozen_demand(replace(last, members=tuple(map(member_of, active)), used_indices=indices))


def plan_in_quarantine(job: Job, release: Collection[str], now: float) -> Plan:
    """Delete the pods (uids) whose GPUs others get. The status says why nothing else is done."""
    why = "Others are entitled to its GPUs."
    deletes = deletes_of_released(job.pods, release, why)
    if job.status.finished or job.deleted:
        return Plan(status=job.status, deletes=deletes)
    assert job.quarantine is not None, "the job is quarantined"
    error = Reason(Phase.INTERNAL_ERROR, job.quarantine.message)
    obs = Observation(job, job.status).with_condition(ConditionType.READY, False, error, now)
    if deletes:
        leave = {deletion.uid for deletion in deletes if deletion.pod.role == ROLE_WORKER}
        listed = [p.model_copy(update={"phase": "Terminating"}) if p.uid in leave else p for p in job.status.pods]
        obs = _of_size(obs.with_status(pods=listed), len(job.active_pods) - len(deletes), why, now)
    return Plan(status=obs.status, write_status_first=bool(deletes), deletes=deletes)


def _of_size(obs: Observation, after: int, why: str, now: float) -> Observation:
    """The observation with that many pods; unchanged if its status says so: a deletion may be tried again."""
    previous = obs.status.target_replicas
    if after == previous:
        return obs
    obs = end_incarnation(obs) if after == 0 else obs
    obs = obs.with_status(target_replicas=after, replicas=min(obs.status.replicas, after))
    return obs.with_change(now, previous, after, ChangeReason.QUOTA_RECLAIMED, why)
