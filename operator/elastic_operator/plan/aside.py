"""A job that is set aside because the operator raised at it: what runs goes on, and others still get what is theirs.

Made of as little as possible: of the job's name, its pods, and what was last known to be good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from elastic_operator.api.status import ConditionType, Phase
from elastic_operator.plan.decisions import DeletePod, Plan, Share
from elastic_operator.plan.demand import member_of
from elastic_operator.plan.job import Job, OwnPod
from elastic_operator.plan.model import JobDemand
from elastic_operator.plan.observation import set_condition


def demand_aside(last: JobDemand, pods: Sequence[OwnPod]) -> JobDemand:
    """The last good demand, with the pods there are: others may be entitled to them, and they never get more."""
    members = tuple(member_of(pod) for pod in pods if not pod.ended and pod.deleting_since is None)
    sizes = tuple(size for size in last.sizes if size <= len(members)) or (len(members),)
    return replace(
        last,
        members=members,
        waiting=(),
        nodes_from=None,
        sizes=sizes,
        taken_indices=frozenset(pod.index for pod in pods if pod.role == "worker"),
        free_up_to=len(members),
    )


def plan_aside(job: Job, share: Share | None, now: float) -> Plan:
    """Deletes the pods whose GPUs go to others, workers before the master; the status says why nothing else is done."""
    status = set_condition(
        job.status, ConditionType.READY, "False", Phase.INTERNAL_ERROR, job.fault, job.generation, now
    )
    release = share.release if share is not None else ()
    going = sorted((pod for pod in job.pods if pod.uid in release), key=lambda pod: (pod.role == "master", -pod.index))
    why = "others are entitled to its GPUs"
    return Plan(status=status, deletes=tuple(DeletePod(pod.name, pod.uid, why) for pod in going))
