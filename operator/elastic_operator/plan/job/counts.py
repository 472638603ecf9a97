"""Makes the numbers of pods, processes and GPUs in a job's status, and its list of pods, mostly from the pods alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from elastic_api.status import MAX_LISTED_PODS, JobStatus, PodStatus, StatusFields
from elastic_api.template import nproc_of
from elastic_operator.plan.facts.decisions import NewPods, Slot
from elastic_operator.plan.facts.job import Job, OwnPod
from elastic_operator.plan.facts.pod_order import master_first
from elastic_operator.plan.facts.times import seconds, status_time
from elastic_operator.plan.job.active_time import account
from elastic_operator.plan.job.master_report import first_ranks, is_whole, keeps_status, report_of
from elastic_operator.plan.job.observation import Observation, is_running
from elastic_worker.contract import LABEL_JOB_NAME, ROLE_MASTER


def with_counts(obs: Observation, now: float) -> Observation:
    """The observation with its counts brought up to date; its members are the pods that stay."""
    status, job = obs.status, obs.job
    running = [pod for pod in obs.members if is_running(pod)]
    holding = [pod for pod in job.pods if pod.bound and not pod.ended]
    ranks = first_ranks(obs)
    listed = [
        _pod_status(pod, ranks.get(pod.name), leaves=pod.uid in obs.planned_deletions and _may_be_listed(pod, status))
        for pod in sorted(job.pods, key=master_first)[:MAX_LISTED_PODS]
    ]
    update: StatusFields = {
        "observed_generation": job.generation,
        "replicas": len(obs.members),
        "ready_replicas": sum(pod.ready for pod in obs.members),
        "world_size": _world_size(obs, running),
        "gpus": sum(pod.gpus for pod in holding),
        "selector": f"{LABEL_JOB_NAME}={job.name}",
        "pods": status.pods if listed == status.pods else listed,
        "pods_not_listed": max(0, len(job.pods) - MAX_LISTED_PODS),
        "running_since": _running_since(obs, running, now),
    }
    update |= account(obs, now)
    if status.finished:
        update["target_replicas"] = 0
    if _completes_change(obs, running, now):
        update["last_resize_time"] = status_time(now)
    return obs.with_status(**update)


def with_created(status: JobStatus, job: Job, new: NewPods, pods: Iterable[OwnPod]) -> JobStatus:
    """The status after all of these pods were created; `pods` are the job's pods that still exist.

    A created pod that has been deleted already counts, and is listed, so that a later pass notices its loss.
    """
    present = {(pod.role, pod.index): pod for pod in pods if pod.incarnation == new.incarnation}
    made = [_created(job, slot, present.get((slot.role, slot.index))) for slot in new.slots]
    in_order = sorted([*status.pods, *made], key=master_first)
    update: StatusFields = {
        "replicas": status.replicas + len(made),
        "pods": in_order[:MAX_LISTED_PODS],
        "pods_not_listed": status.pods_not_listed + max(0, len(in_order) - MAX_LISTED_PODS),
    }
    return status.model_copy(update=update)


def _created(job: Job, slot: Slot, pod: OwnPod | None) -> PodStatus:
    if pod is not None:
        return _pod_status(pod, None, leaves=False)
    return PodStatus(name=slot.pod_name(job.name), role=slot.role, index=slot.index, node=slot.node, phase="Pending")


def _completes_change(obs: Observation, running: list[OwnPod], now: float) -> bool:
    """Whether the newest change of size is complete now, and was not when the status was written."""
    status = obs.status
    if not status.history or seconds(status.last_resize_time) >= seconds(status.history[0].time):
        return False
    leaving = any(pod.deleting_since is not None for pod in obs.job.pods)
    return len(running) == status.target_replicas > 0 and not leaving and is_whole(obs, now)


def _running_since(obs: Observation, running: list[OwnPod], now: float) -> datetime | None:
    """When the whole minimum began to run; the same time while it runs."""
    if obs.job.spec is None or obs.status.finished:
        return obs.status.running_since
    if len(running) < obs.job.spec.minimum or obs.status.master_lost_time is not None:
        return None
    started = max((pod.main.running_since or 0.0 for pod in running), default=0.0)
    return obs.status.running_since or status_time(min(started, now))  # nodes' clocks may be ahead


def _world_size(obs: Observation, running: list[OwnPod]) -> int:
    """The training processes: by the master's report, capped at what the pods can have; else by the running pods."""
    if obs.job.spec is None:
        return 0
    report = report_of(obs)
    reported = report.world_size if report is not None else obs.status.world_size if keeps_status(obs) else None
    roles = Counter(pod.role for pod in (running if reported is None else obs.members))
    most = sum(count * nproc_of(obs.spec, role) for role, count in roles.items())
    return most if reported is None else min(reported, most)


def _may_be_listed(pod: OwnPod, status: JobStatus) -> bool:
    """Whether the pod may be listed as Terminating before its deletion. A master without a successor may not.

    While the status lists a master as alive, its epoch counts as used (`elastic_rules.replace_lost_pods`).
    """
    return pod.role != ROLE_MASTER or pod.incarnation != status.incarnation or status.finished


def _pod_status(pod: OwnPod, rank: int | None, *, leaves: bool) -> PodStatus:
    leaves = leaves or pod.deleting_since is not None
    # A refused pod has not ended: it has never run (`losses.has_no_master_yet`).
    phase = "Terminating" if leaves and (pod.refused or not pod.ended) else pod.phase
    return PodStatus(
        name=pod.name,
        uid=pod.uid,
        role=pod.role,
        index=pod.index,
        node=pod.node,
        phase=phase,
        gpus=pod.gpus,
        rank=rank,
    )
