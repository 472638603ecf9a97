"""Says why pods do not run yet, if a person can do something about it: no node, no image, no scheduler, a scheduling
gate.

A scheduler that finds no node for a pod, or that fails, says so in the pod's condition PodScheduled. Without that
condition, no scheduler has looked at the pod: it does not run, the pod names one that does not exist, or the pod has
scheduling gates. A gate is removed by the controller that set it. Until then the pod waits without a limit (176).
"""

from __future__ import annotations

from collections import defaultdict

from elastic_operator.plan.facts.job import STARTS, OwnPod
from elastic_operator.plan.facts.pod_shape import DEFAULT_SCHEDULER
from elastic_operator.plan.facts.text import MAX_NAMED, listed
from elastic_operator.plan.job.observation import Observation

UNSEEN_SECONDS = 30.0
"""kube-scheduler looks at a new pod within milliseconds, or within seconds if its queue is long."""


def scheduler_deadlines(obs: Observation) -> list[float]:
    """By when a scheduler should look at the pods that no scheduler has looked at yet."""
    return [pod.created + UNSEEN_SECONDS for pod in obs.members if _is_unseen(pod)]


def why_pods_wait(obs: Observation, now: float) -> list[str]:
    """A sentence for each reason, with the pods that wait for it. If there are many reasons, only some are named."""
    waiting: defaultdict[str, list[str]] = defaultdict(list)
    for pod in obs.members:
        if why := _why(obs, pod, now):
            waiting[why].append(pod.name)
    texts = [f"{listed(names)}: {why}" for why, names in waiting.items()]
    left = sum(len(names) for names in list(waiting.values())[MAX_NAMED:])
    return [*texts[:MAX_NAMED], f"{left} more pods wait"] if left else texts


def _why(obs: Observation, pod: OwnPod, now: float) -> str:
    if pod.gates:
        return f"kube-scheduler does not look at it before its scheduling gates are removed: {listed(pod.gates)}"
    if pod.unschedulable:
        return f"the scheduler finds no node: {pod.unschedulable}"
    if pod.scheduler_error:
        return f"the scheduler failed, and tries it again: {pod.scheduler_error}"
    if pod.main.waiting_reason not in STARTS:
        return f"{pod.main.waiting_reason}: {pod.main.waiting_message}".rstrip(": ")
    if _is_unseen(pod) and now >= pod.created + UNSEEN_SECONDS:
        return f"no scheduler has tried it within {UNSEEN_SECONDS:.0f} s. Check that {_scheduler(obs, pod)} runs."
    return ""


def _is_unseen(pod: OwnPod) -> bool:
    return pod.phase == "Pending" and not (pod.bound or pod.unschedulable or pod.scheduler_error or pod.gates)


def _scheduler(obs: Observation, pod: OwnPod) -> str:
    asked = obs.spec.template_of(pod.role)["spec"].get("schedulerName") or DEFAULT_SCHEDULER
    return "kube-scheduler" if asked == DEFAULT_SCHEDULER else f"a scheduler called {asked} (schedulerName)"
