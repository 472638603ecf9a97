"""Counts for how long, in all, a job has had pods on nodes. `activeDeadlineSeconds` limits this time (135)."""

from __future__ import annotations

from datetime import datetime

from elastic_api.status import ConditionType, JobStatus, StatusFields
from elastic_operator.plan.facts.times import seconds, status_time
from elastic_operator.plan.job.observation import Observation


def uses_nodes(obs: Observation) -> bool:
    """Whether the job has pods on nodes.

    A pod that is being deleted on a node that is not Ready stays until the node is back or removed. It does not count.
    """
    pods = [pod for pod in obs.job.pods if pod.bound and not pod.ended]
    return any(pod.deleting_since is None or pod.node not in obs.unready_nodes for pod in pods)


def active_for(obs: Observation, now: float) -> float:
    """For how many seconds the job has had pods on nodes."""
    spent, since = _known(obs, now)
    return spent + (now - seconds(since) if since else 0.0)


def account(obs: Observation, now: float) -> StatusFields:
    """The fields of the status for this time, brought up to date."""
    status, holds = obs.status, uses_nodes(obs)
    spent, since = _known(obs, now)
    if status.finished or (status.active_seconds is not None and holds == (since is not None)):
        return {}
    if status.active_seconds is not None:
        spent, since = (spent, status_time(now)) if holds else (max(spent, active_for(obs, now)), None)
    return {"active_seconds": int(spent), "active_since": since}


def _known(obs: Observation, now: float) -> tuple[float, datetime | None]:
    """The seconds that the status counts, and since when more of them pass. If it counts none, its history is used.

    The account is missing before the first pass of this release, and if the CRD is of an older release that lacks the
    field.
    """
    if obs.status.active_seconds is None:
        return _from_history(obs.status, holds=uses_nodes(obs), now=now)
    return float(obs.status.active_seconds), obs.status.active_since


def _from_history(status: JobStatus, *, holds: bool, now: float) -> tuple[float, datetime | None]:
    """The account of a job that has none: a new job, or one of a release that counted from the first start.

    Such a release recorded when the job got its pods and when it lost them. Time that it did not record counts as time
    with pods, as all time did in that release. So the job does not end at once, and its deadline does not begin again.
    """
    spent, since, ended = 0.0, status.start_time, None
    for change in reversed(status.history):
        if change.to == 0 and since is not None:
            spent, since, ended = spent + seconds(change.time) - seconds(since), None, change.time
        elif change.from_ == 0 and since is None:
            since = change.time
    if holds:
        return spent, since or ended or status_time(now)  # the replacement of lost pods is not recorded as a change
    admitted = status.condition(ConditionType.ADMITTED)
    until = seconds(admitted.last_transition_time) if admitted and admitted.status == "False" else now
    return spent + (max(0.0, until - seconds(since)) if since else 0.0), None
