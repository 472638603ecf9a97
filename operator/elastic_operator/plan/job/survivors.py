"""Finds the pods of a Torchrun job that train on after the loss of a node. They are not replaced (146).

Nothing ends the connections to a machine that is off, so the other pods may wait for that machine forever. If they do,
all pods are replaced (47). If the connections have ended, torchrun forms a smaller group within seconds. Process 1 of
each pod writes its group into the log (`build/torchrun_group.py`): if all these pods are one group of exactly their
number, they have no connection to another pod. The logs are read before the node is given up, so by default this rule
makes no pod wait longer.
"""

from __future__ import annotations

from math import inf

from elastic_api.status import JobStatus
from elastic_operator.plan.facts.job import Job, Survivors
from elastic_operator.plan.facts.pod_order import master_first, master_in
from elastic_operator.plan.job.observation import is_running

SURVIVOR_READ_SECONDS = 20.0
"""The logs are read for at least this long before a node is given up. A group needs 10 s to form without a lost pod.
Process 1 and the reading of logs need some more. Kubernetes notices only after 40 s that a node is off.
"""
BEGIN_SECONDS = 5.0
"""A working operator begins the reading within this time."""


def survivors(job: Job, status: JobStatus) -> Survivors | None:
    """The pods that could be a group without the nodes that are not Ready; None if there can be no such group.

    torchrun's store is lost with the master, and fewer pods than the minimum are no group.
    """
    if job.spec is None or job.spec.is_elastic:
        return None
    members = [pod for pod in job.pods if pod.incarnation == status.incarnation and not pod.ended]
    unready = job.context.unready
    if not any(pod.node in unready for pod in members):
        return None
    staying = (pod for pod in members if pod.node not in unready and pod.deleting_since is None)
    running = sorted(filter(is_running, staying), key=master_first)
    if len(running) < job.spec.minimum or master_in(running) is None:
        return None
    return Survivors(tuple(running), min(unready.values()))


def trains_on(job: Job, staying: Survivors | None) -> bool:
    """Whether these pods are a group of their own."""
    return staying is not None and job.feedback.group is not None and job.feedback.group.pods == staying.uids


def decided_at(job: Job, staying: Survivors | None, now: float) -> float:
    """By when it is known at the latest whether the pods are a group; -inf if it is known, if nobody reads the logs, or
    if the clock was set back since the reading began.
    """
    if staying is None or trains_on(job, staying):
        return -inf
    group = job.feedback.group
    if group is None:
        return now + BEGIN_SECONDS if job.feedback.pods_are_asked else -inf
    return group.read_since + SURVIVOR_READ_SECONDS if group.read_since <= now + 1 else -inf
