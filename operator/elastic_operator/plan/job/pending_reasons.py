"""Says why pods do not run yet, if a person can do something about it: no node, no image, no scheduler, a scheduling
gate. Each reason is a sentence with the names of its pods.

A scheduler that finds no node for a pod, or that fails, says so in the pod's condition PodScheduled. Without that
condition, no scheduler has looked at the pod: it does not run, the pod names one that does not exist, or the pod has
scheduling gates. A gate is removed by the controller that set it. Until then the pod waits without a limit (176).
"""

from __future__ import annotations

from collections import defaultdict

from elastic_operator.plan.facts.job import STARTS, OwnPod
from elastic_operator.plan.facts.pod_shape import DEFAULT_SCHEDULER
from elastic_operator.plan.facts.text import MAX_NAMED, listed, sentence
from elastic_operator.plan.job.observation import Observation

UNSEEN_SECONDS = 30.0
"""kube-scheduler looks at a new pod within milliseconds, or within seconds if its queue is long."""


def scheduler_deadlines(obs: Observation) -> list[float]:
    """By when a scheduler should look at the pods that no scheduler has looked at yet."""
    return [pod.created + UNSEEN_SECONDS for pod in obs.members if _is_unseen(pod)]


def why_pods_wait(obs: Observation, now: float) -> list[str]:
    """A sentence for each reason, with the pods that wait for it. If there are many reasons, only some are named."""
    waiting: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in obs.members:
        if why := _why(obs, pod, now):
            waiting[why].append(pod.name)
    texts = [sentence(f"{before}{listed(names)}{after}") for (before, after), names in waiting.items()]
    left = sum(len(names) for names in list(waiting.values())[MAX_NAMED:])
    return [*texts[:MAX_NAMED], f"{left} more {'pod waits' if left == 1 else 'pods wait'}."] if left else texts


def _why(obs: Observation, pod: OwnPod, now: float) -> tuple[str, str] | None:
    """The parts of a sentence before and after the names of the pods that it is about; None if there is no reason."""
    if pod.gates:
        gates = f"{listed(pod.gates)}. Check the controllers that set these gates."
        return "kube-scheduler does not look at ", f" before these scheduling gates are removed: {gates}"
    if pod.unschedulable:
        return "The scheduler finds no node for ", f": {pod.unschedulable}"
    if pod.scheduler_error:
        return "The scheduler failed, and tries ", f" again: {pod.scheduler_error}"
    if pod.main.waiting_reason not in STARTS:
        return "", f" cannot start: {pod.main.waiting_reason}: {pod.main.waiting_message}".rstrip(": ")
    if _is_unseen(pod) and now >= pod.created + UNSEEN_SECONDS:
        asked = obs.spec.template_of(pod.role)["spec"].get("schedulerName") or DEFAULT_SCHEDULER
        who = "kube-scheduler" if asked == DEFAULT_SCHEDULER else f"a scheduler called {asked} (schedulerName)"
        return "No scheduler has tried ", f" within {UNSEEN_SECONDS:.0f} s. Check that {who} runs."
    return None


def _is_unseen(pod: OwnPod) -> bool:
    return pod.phase == "Pending" and not (pod.bound or pod.unschedulable or pod.scheduler_error or pod.gates)
