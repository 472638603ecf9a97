"""Plans for jobs that get no pods: ended, suspended, or created only to ask what they would get. Their pods are
deleted, and the job may be, too.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from elastic_api.job import CleanPodPolicy
from elastic_api.status import ConditionType
from elastic_api.what_if import ONCE, ONCE_SECONDS
from elastic_operator.attempts import lasts
from elastic_operator.plan.facts.decisions import DeletePod, Grant, Plan
from elastic_operator.plan.facts.times import seconds
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.plan_writes import deletes_of, make_plan, reclaimed
from elastic_operator.plan.job.remaining_pods import clean_pod_policy, is_deleted_at_the_end

FINISH_SECONDS = 60.0
"""The time that the workers have to end on their own after the master has succeeded."""


def plan_finished(obs: Observation, grant: Grant | None, now: float) -> Plan:
    """The plan of a job that has ended.

    Pods are deleted as cleanPodPolicy says. Pods that it keeps are deleted when others are entitled to their GPUs (99).
    The job itself is deleted when its time is over.
    """
    spec, status = obs.job.spec, obs.status
    ended = seconds(status.completion_time)
    failed = status.condition(ConditionType.FAILED)
    at_once = (failed and failed.status == "True") or all(pod.ended for pod in obs.job.pods)
    policy = clean_pod_policy(obs)
    to_delete = [p for p in obs.job.pods if p.deleting_since is None and is_deleted_at_the_end(p, policy)]
    # The kubelet reports a container's end before it reports the pod's, so such a pod is about to end on its own.
    ending = {p.uid for p in to_delete if policy == CleanPodPolicy.RUNNING and p.main.exit_code is not None}
    due = {p.uid: ended if at_once and p.uid not in ending else ended + FINISH_SECONDS for p in to_delete}
    why = f"the job has ended ({policy})"
    deletes = (*(DeletePod(p, why) for p in to_delete if now >= due[p.uid]), *reclaimed(obs, grant))
    ttl = spec.ttl_seconds_after_finished if spec else None
    expiry = inf if ttl is None else ended + ttl
    plan = make_plan(replace(obs, members=()), None, deletes, None, now)
    requeue_at = min((time for time in (*due.values(), expiry) if time > now), default=inf)
    return replace(plan, delete_job=now >= expiry, requeue_at=requeue_at)


def without_pods(obs: Observation, now: float) -> Plan:
    """Delete all pods of a suspended job. If it is not suspended, its pods without GPUs continue; none are created.

    A job that was created to ask once is deleted after a while, if it never had a pod (160).
    """
    suspended = [DeletePod(p, "spec.suspend is true") for p in obs.members] if obs.job.is_suspended else []
    plan = make_plan(obs, None, (*deletes_of(obs), *suspended), None, now)
    asks_once = obs.job.is_what_if and obs.job.what_if == ONCE
    if not asks_once or obs.job.pods or obs.status.start_time is not None:
        return plan
    expiry = obs.job.created + ONCE_SECONDS
    over = not lasts(expiry, ONCE_SECONDS, now)
    return replace(plan, delete_job=True) if over else replace(plan, requeue_at=min(plan.requeue_at, expiry))
