"""Whether the pods that a lost node leaves of a Torchrun job train on by themselves; then they are left alone (146).

Nothing ends the connections to a machine that is off, so those that are left may wait for it without end, and then all
pods are replaced (47). But where the connections did end, torchrun has formed a smaller group within seconds. That is
shown by what process 1 of each pod says in its log (`build/group.py`): pods that are one group, of just as many as they
are, are connected with nobody else. It is looked for while the node is not given up yet, so by default nobody stands
still for longer than before.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from elastic_operator.api.status import JobStatus
from elastic_operator.plan.facts.job import Job, Survivors
from elastic_operator.plan.facts.roles import MASTER, master_first
from elastic_operator.plan.job.observation import is_running

ASK_SECONDS = 20.0
"""For so long at least the logs are read before a node is given up. A group takes 10 s to form without a pod that is
gone, and process 1 and the reading of logs some more. Kubernetes misses a node that is off after 40 s only."""
BEGIN_SECONDS = 5.0
"""Within that time the reading begins, if the operator works."""


def survivors(job: Job, status: JobStatus, lost_since: Mapping[str, float]) -> Survivors | None:
    """Those that could be a group without the nodes that are not Ready since then; None where none could be.

    torchrun's store goes with the master, and nobody is a group below the minimum.
    """
    if job.spec is None or job.spec.is_elastic:
        return None
    members = [pod for pod in job.pods if pod.incarnation == status.incarnation and not pod.ended]
    if not any(pod.node in lost_since for pod in members):
        return None
    left = (pod for pod in members if pod.node not in lost_since and pod.deleting_since is None)
    running = sorted(filter(is_running, left), key=master_first)
    if len(running) < job.spec.min_replicas or running[0].role != MASTER:
        return None
    return Survivors(tuple(running), min((since for since in lost_since.values() if since > -inf), default=inf))


def go_on(job: Job, left: Survivors | None) -> bool:
    """Whether those that are left are a group of their own."""
    return left is not None and job.group is not None and job.group.pods == left.uids


def decided_at(job: Job, left: Survivors | None, now: float) -> float:
    """When it is decided at the latest; -inf where it is, or where the clock was set back since it is asked."""
    if left is None or go_on(job, left):
        return -inf
    if job.group is None:
        return now + BEGIN_SECONDS
    return job.group.asked_since + ASK_SECONDS if job.group.asked_since <= now + 1 else -inf
