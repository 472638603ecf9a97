"""Gives a new master that finds no place the place of the highest worker: workers cannot train without a master."""

from __future__ import annotations

from dataclasses import replace

from elastic_api.pod_names import pod_name
from elastic_operator.plan.facts.decisions import Assignment, Grant
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.facts.times import seconds
from elastic_operator.plan.job.observation import Observation, master_of
from elastic_worker.contract import ROLE_MASTER

WAIT_FOR_NODE_SECONDS = 30.0
"""How long a new master waits for a place before a worker is released for it, and again before the next worker is."""


def make_room_for_master(obs: Observation, grant: Grant, now: float) -> tuple[Observation, Grant]:
    """The grant without the highest worker, if the master has waited too long for a place.

    If the job would then have less than its minimum, the grant is unchanged.
    """
    lost_at = obs.status.master_lost_time
    workers = [pod for pod in obs.members if pod.role != ROLE_MASTER and pod.uid in grant.assignment.keep]
    if lost_at is None or len(workers) < max(1, obs.spec.minimum) or not _finds_no_place(obs, grant, now):
        return obs, grant
    latest = max([lost_at, *(change.time for change in obs.status.history[:1])])
    due = seconds(latest) + WAIT_FOR_NODE_SECONDS
    if now < due:
        return obs.again_at(due), grant
    return obs, _without(grant, workers[-1])


def _finds_no_place(obs: Observation, grant: Grant, now: float) -> bool:
    """Whether there is no node for the master, now or soon. False if its creation fails for another reason."""
    master = master_of(obs)
    if master is not None:
        return master.node is None and bool(master.unschedulable)
    name = pod_name(obs.job.name, ROLE_MASTER, 0)
    name_is_free = name not in obs.job.foreign_names and all(pod.name != name for pod in obs.job.pods)
    gets_one = any(slot.role == ROLE_MASTER for slot in grant.assignment.create)
    return name_is_free and not gets_one and not obs.finishing and now >= obs.no_pods_before


def _without(grant: Grant, worker: OwnPod) -> Grant:
    assignment = grant.assignment
    kept, released = tuple(uid for uid in assignment.keep if uid != worker.uid), (worker.uid, *assignment.release)
    text = f"{worker.name} is deleted to make room for a new master; no other node has room for the master."
    why = Reason(grant.size_reason.code, text)
    without, target = Assignment(kept, released, assignment.create), grant.target_replicas - 1
    return replace(grant, assignment=without, target_replicas=target, size_reason=why, only_for_foreign_pods=False)
