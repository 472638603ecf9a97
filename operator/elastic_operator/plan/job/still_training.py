"""Finds nodes that are not Ready but whose pods train, by the report of an Elastic job's master (92).

A node is Ready if its kubelet reaches the API server. If only the API server cannot hear a node, the pods there train
on. To give the node up would cost the job its work, and start a second copy of each pod beside the first. So the
operator asks the master, and believes it while it answers, except about pods that are being deleted. If a user makes
the master lie, the only effect is that pods stay on a node that takes no new pods. In Torchrun mode there is no master
to ask. A node that is deleted or tainted out-of-service is lost, whatever the master says.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.job.observation import Observation, is_running, present_pods
from elastic_worker.contract import ROLE_MASTER

FRESH_SECONDS = 5.0
"""An answer counts for this long. The master is asked each second meanwhile, and notices a lost pod within 6 s."""
FORMING_SECONDS = 30.0
"""Between two groups the members of the next group are unknown. The operator waits no longer than this for it."""


def still_training(obs: Observation, due: Mapping[str, float], now: float) -> frozenset[str]:
    """The nodes that could be given up since `due` and whose pods train by the master's report."""
    job, report = obs.job, obs.job.feedback.report
    masters = (pod for pod in present_pods(obs) if pod.role == ROLE_MASTER and is_running(pod) and pod.pod_ip)
    master = next(masters, None) if job.is_elastic else None
    if master is None or now >= fresh_until(job, now):
        return frozenset()
    if report is None or report.master_uid != master.uid:  # the master has not answered yet
        return frozenset(due)
    if not report.world_size:
        return frozenset(node for node, time in due.items() if now < time + FORMING_SECONDS)
    training = (pod for pod in job.pods if pod.name in report.members and pod.deleting_since is None)
    return frozenset(pod.node for pod in training if pod.node) & due.keys()


def fresh_until(job: Job, now: float) -> float:
    """Until when (epoch seconds) the master's last answer counts, or its first is awaited; -inf if it is not polled."""
    answered_at = job.feedback.last_answer_at
    if answered_at is None:
        return now + FRESH_SECONDS if job.feedback.pods_are_asked else -inf
    return min(answered_at, now) + FRESH_SECONDS
