"""Nodes that are not Ready and are alive all the same: the master of an Elastic job says that its pods there train.

Ready is what a kubelet could tell the API server. A pod on a node that is cut off from there alone trains on, and to
give it up would cost the job its work, and start a second copy of the pod beside the first. So the master is asked, and
believed as long as it answers, but not of pods that are to go: at worst a user who makes it lie keeps pods on a node
where nobody else gets any. In Torchrun mode nobody can be asked. Whoever deletes a node or taints it out-of-service is
believed before any master.
"""

from __future__ import annotations

from collections.abc import Mapping

from elastic_operator.api.status import JobStatus
from elastic_operator.plan.facts.job import Job, OwnPod
from elastic_operator.plan.facts.roles import MASTER
from elastic_operator.plan.job.observation import is_running, is_superseded

FRESH_SECONDS = 5.0
"""So old may an answer be; a master is asked each second meanwhile, and notices within 6 s that a pod is gone."""
FORMING_SECONDS = 30.0
"""Between two groups nobody can say who will be in the next one; it is waited for no longer than this."""


def still_training(job: Job, status: JobStatus, due: Mapping[str, float], now: float) -> frozenset[str]:
    """Of the nodes that would be given up since `due`, those with pods that train, as far as the master knows."""
    master, report = _asked(job, status), job.report
    if master is None or now >= fresh_until(job, now):
        return frozenset()
    if report is None or report.master_uid != master.uid:  # it has not answered yet
        return frozenset(due)
    if not report.world_size:
        return frozenset(node for node, time in due.items() if now < time + FORMING_SECONDS)
    training = (pod for pod in job.pods if pod.name in report.members and pod.deleting_since is None)
    return frozenset(pod.node for pod in training if pod.node) & due.keys()


def fresh_until(job: Job, now: float) -> float:
    """Until when the master's last answer is believed; one that was not asked since has time to answer."""
    return (now if job.heard is None else min(job.heard, now)) + FRESH_SECONDS


def _asked(job: Job, status: JobStatus) -> OwnPod | None:
    """The job's running master, where it can be asked."""
    if job.spec is None or not job.spec.is_elastic:
        return None
    masters = (pod for pod in job.pods if pod.role == MASTER and pod.incarnation == status.incarnation)
    return next((pod for pod in masters if is_running(pod) and pod.pod_ip and not is_superseded(pod, status)), None)
