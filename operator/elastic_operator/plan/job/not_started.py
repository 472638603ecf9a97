"""Deletes pods that have a node and do not start there. They are created again later, even without an edit (136)."""

from __future__ import annotations

from elastic_api.status import ConditionType, RetryCause
from elastic_operator.plan.facts.job import STARTS, OwnPod
from elastic_operator.plan.facts.text import Reason, sentence
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.unplaceable import back_off, is_awaited

NO_REASON_FACTOR = 12
"""The limit is this many times as long if the kubelet names no trouble: it may attach a volume, change the owner of its
files, or, if older, pull an image.
"""


def delete_pods_not_started(obs: Observation, now: float) -> Observation:
    """Delete pods that have a node and do not start there, because an image, a volume or a setting is missing
    (136).

    The other pods are deleted with them if they are fewer than the minimum, because they would hold GPUs for nothing. A
    running init container is the user's own code, like the main container later. The pull of an image has no limit: the
    container runtime itself gives up a pull that makes no progress, and the kubelet then reports that.
    """
    waiting = [pod for pod in obs.members if _starts(pod) and not is_awaited(obs, pod)]
    waiting = [pod for pod in waiting if pod.node not in obs.unready_nodes and not pod.main.is_on_its_way]
    if not obs.job.start_seconds or obs.finishing or not waiting:
        return obs
    waits = [(pod, _since(pod) + _start_seconds(obs, pod)) for pod in waiting]
    due = [pod for pod, until in waits if now >= until]
    if not due:
        return obs.again_at(*(until for _, until in waits))
    why, staying = _why_not_started(obs, due), tuple(pod for pod in obs.members if pod not in due)
    reason = Reason(due[0].main.waiting_reason or "ContainerCreating", why)
    obs = back_off(obs, now, staying, RetryCause.PODS_NOT_STARTED, why)
    return obs.with_condition(ConditionType.PODS_NOT_STARTED, True, reason, now)


def _starts(pod: OwnPod) -> bool:
    """Whether the pod has a node, and its main container has not run there yet."""
    main = pod.main
    return pod.bound and pod.phase == "Pending" and main.running_since is None and main.exit_code is None


def _since(pod: OwnPod) -> float:
    """When the pod began its present step. A container's image is pulled when the container before it has ended."""
    bound = pod.created if pod.bound_since is None else pod.bound_since
    return max(bound, pod.main.waiting_since or bound)


def _start_seconds(obs: Observation, pod: OwnPod) -> int:
    """How long the pod has to start."""
    return obs.job.start_seconds * (NO_REASON_FACTOR if pod.main.waiting_reason in STARTS else 1)


def _why_not_started(obs: Observation, due: list[OwnPod]) -> str:
    """A sentence with the first pod, the container and the reason."""
    pod, main = due[0], due[0].main
    others = len(due) - 1
    more = f" ({others} more {'has' if others == 1 else 'have'} not started)" if others else ""
    if main.waiting_reason in STARTS:
        why = f"{main.waiting_reason or 'ContainerCreating'}. Its events say more (kubectl describe pod {pod.name})"
    else:
        why = f"{main.waiting_reason}: {main.waiting_message}".rstrip(": ")
    container = f"container {main.waiting_container}: " if main.waiting_container else ""
    text = f"{pod.name} has not started on node {pod.node} in {_start_seconds(obs, pod)} s{more}: {container}{why}"
    return sentence(text)
