"""Pods that are gone though nobody wanted it: how they are counted, told, and not replaced without end."""

from __future__ import annotations

from dataclasses import replace

from elastic_operator.api.status import JobStatus, Retry
from elastic_operator.plan.decisions import Event
from elastic_operator.plan.failures import DISTURBANCE_SECONDS, MAX_BACKOFF_SECONDS
from elastic_operator.plan.job import OwnPod
from elastic_operator.plan.observation import Observation, at, end_incarnation, present, record, replace_all, seconds

MASTER_LOST = "MasterLost"
REASONS = ("PodLost", MASTER_LOST)
"""Of such changes in a job's history."""


def losses(seen: Observation, now: float) -> Observation:
    """Fewer members than last reported: some were lost. Without its master an incarnation is over.

    And with a node: nothing ends the connections to a machine that is off, and the others would wait for it in vain.
    """
    has_master = bool(seen.live) and seen.live[0].role == "master"
    lost = lost_count(seen)
    if seen.live and seen.status.replicas and not has_master:
        lost = max(lost, 1)
    if lost <= 0 or (seen.finishing and has_master):
        return seen
    seen = count_losses(seen, lost, now)
    if not has_master:
        text = "The master is gone: all pods are replaced under a new rendezvous id."
        return replace_all(seen, end_incarnation(seen.status), Event("MasterReplaced", text, "Warning"))
    if node_is_lost(seen):
        text = "A node is gone, and connections to it may never end: all pods are replaced under a new rendezvous id."
        return replace_all(seen, end_incarnation(seen.status), Event("NewIncarnation", text, "Warning"))
    return seen


def lost_count(seen: Observation) -> int:
    """How many of the members that the last status counts are not there any more."""
    return seen.status.replicas - len(_reported(seen))


def count_losses(seen: Observation, lost: int, now: float, *, reason: str = "PodLost") -> Observation:
    """The job with so many losses written down and told."""
    why = _why_lost(seen, lost)
    status = seen.status.model_copy(update={"restarts": seen.status.restarts + lost, "replicas": len(seen.live)})
    status = _wait_if_repeated(status, now, why, reasons=(reason,) if reason == MASTER_LOST else REASONS)
    status = record(status, now, seen.status.replicas, seen.status.replicas - lost, reason, why)
    event = Event("NodeLost" if node_is_lost(seen) else "PodLost", why, "Warning")
    return replace(seen, status=status, commit=True, events=(*seen.events, event))


def node_is_lost(seen: Observation) -> bool:
    """Whether any of the pods that go is on a node that is lost."""
    return any(pod.node in seen.lost_nodes for pod, _ in seen.gone)


def _reported(seen: Observation) -> list[OwnPod]:
    """The members that the last status knew; pods made since do not stand in for one that was lost meanwhile."""
    listed = {pod.name for pod in seen.status.pods}
    return [pod for pod in seen.live if not listed or seen.status.pods_not_listed or pod.name in listed]


def _wait_if_repeated(status: JobStatus, now: float, why: str, *, reasons: tuple[str, ...]) -> JobStatus:
    """Pods that are lost as fast as they are made (a kubelet that refuses them, say) are not made without end.

    A new master is not kept waiting for what happened to workers: without it nobody trains.
    """
    lost = [c for c in status.history if c.reason in reasons and now - seconds(c.time) <= DISTURBANCE_SECONDS]
    if len(lost) < 2:
        return status if reasons == REASONS else status.model_copy(update={"retry": None})
    wait = min(2 ** (len(lost) - 1), MAX_BACKOFF_SECONDS)
    retry = Retry(reason=f"{len(lost) + 1} losses in two minutes. {why}", not_before=at(now + wait), attempt=len(lost))
    return status.model_copy(update={"retry": retry})


def _why_lost(seen: Observation, lost: int) -> str:
    """Names the pods: those that go for the cluster's reasons, then what the last status listed and is no more."""
    alive = {pod.name for pod in seen.live}
    causes = {pod.name: why for pod, why in seen.gone if pod.incarnation == seen.status.incarnation}
    causes |= {pod.name: pod.disrupted for pod in present(seen) if pod.disrupted}
    listed = [p.name for p in seen.status.pods if p.name not in alive and p.phase in ("Pending", "Running")]
    names = list(dict.fromkeys([*causes, *listed]))[:lost]
    told = [f"{name} ({causes[name]})" if causes.get(name) else name for name in names]
    return f"Lost {', '.join(told) or 'a pod'}; not counted as a failure."
