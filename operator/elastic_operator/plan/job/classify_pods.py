"""Sorts the pods of a job into members and pods to delete."""

from __future__ import annotations

from dataclasses import replace

from elastic_operator.plan.facts.decisions import DeletePod
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.pod_order import master_first
from elastic_operator.plan.job.failures import has_failed, short_failure, was_deleted_before_exit
from elastic_operator.plan.job.lost_nodes import why_lost
from elastic_operator.plan.job.observation import Observation, is_superseded, present_pods
from elastic_worker.contract import ROLE_MASTER


def classify_pods(obs: Observation) -> Observation:
    """Sort the pods into members and pods to delete, and give each pod to delete its reason."""
    members: list[OwnPod] = []
    to_delete: list[DeletePod] = []
    for pod in sorted(obs.job.pods, key=master_first):
        if pod.node and obs.is_lost(pod.node) and not pod.ended:
            to_delete.append(obs.deletion(pod, why_lost(obs, pod.node)))
        elif pod.deleting_since is not None:
            continue
        elif pod.incarnation != obs.status.incarnation:
            to_delete.append(obs.of_ended_incarnation(pod))
        elif is_superseded(pod, obs.status):
            to_delete.append(obs.deletion(pod, f"it is master {pod.master_epoch}, and there is a newer one"))
        elif pod.ended and pod.disrupted:
            to_delete.append(obs.deletion(pod, pod.disrupted))
        elif obs.spec.is_elastic and pod.role != ROLE_MASTER and has_failed(pod):
            to_delete.append(obs.deletion(pod, short_failure(pod)))
        elif not pod.ended:
            members.append(pod)
    finishing = any(p.main.exit_code == 0 and not was_deleted_before_exit(p) for p in present_pods(obs))
    return replace(obs, members=tuple(members), to_delete=tuple(to_delete), finishing=finishing)


def classify_pods_without_spec(obs: Observation) -> Observation:
    """The same for a job without a readable spec: members are kept, pods of an earlier incarnation are deleted (99)."""
    pods = [pod for pod in sorted(obs.job.pods, key=master_first) if pod.deleting_since is None]
    old = [pod for pod in pods if pod.incarnation != obs.status.incarnation]
    members = tuple(pod for pod in pods if pod not in old and not pod.ended)
    return replace(obs, members=members, to_delete=tuple(map(obs.of_ended_incarnation, old)))
