"""Pods that cannot be had now: those that the API server refuses, and those that the scheduler finds no node for.

They are taken back, and what they were for is tried again later, by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from elastic_operator.api.status import Retry
from elastic_operator.plan.decisions import Event
from elastic_operator.plan.job import OwnPod
from elastic_operator.plan.observation import Observation, at, end_incarnation, master_of, replace_all

BLOCKED_SECONDS = 10
LONGEST_BLOCKED_SECONDS = 300
"""Pods that the API server refuses are tried again after so long, doubled each time up to the longest."""
STUCK_SECONDS = 60.0
"""A pod the scheduler cannot place for so long is taken back."""
UNPLACED_SECONDS = 30
LONGEST_UNPLACED_SECONDS = 1800
"""And is tried again after so long, doubled each time up to the longest."""


def refused(seen: Observation, now: float) -> Observation:  # noqa: ARG001 - a rule like the others
    """What does not make the minimum, and cannot before somebody edits the job, gives its place back."""
    assert seen.job.spec is not None
    if not seen.job.stands or not seen.live:
        return seen
    if len(seen.live) >= seen.job.spec.min_replicas and master_of(seen) is not None:
        return seen
    event = Event("ScaleUpBlocked", f"{seen.job.stands} Its other pods are given back.", "Warning")
    return replace_all(seen, end_incarnation(seen.status, target_replicas=0), event)


def blocked(seen: Observation, now: float) -> Observation:
    """More pods than there are the API server does not take: tried again later, by itself.

    What does not make the minimum goes meanwhile, since it may stand in others' way: two jobs under one quota, say.
    Pods on their way out may be what stands in the way, so these are waited for first.
    """
    assert seen.job.spec is not None
    leaving = any(pod.deleting_since is not None for pod in seen.job.pods)
    if not seen.job.blocked or leaving or seen.job.spec.suspend:
        return seen
    least, times = seen.job.spec.min_replicas, (BLOCKED_SECONDS, LONGEST_BLOCKED_SECONDS)
    return _try_later(seen, now, seen.live, seen.job.blocked, least=least, times=times)


def stuck(seen: Observation, now: float) -> Observation:
    """Pods the scheduler cannot place are taken back, and the size they were for is not tried for a while.

    Those that ask for new nodes get longer; where no node came, what there is of the minimum goes with them.
    """
    waiting = [pod for pod in seen.live if pod.unschedulable and pod.unschedulable_since is not None]
    if not waiting:
        return seen
    pods = [pod for pod in waiting if not _is_awaited(seen, pod)]
    waits = [(pod, (pod.unschedulable_since or 0.0) + _patience(seen, pod)) for pod in pods]
    due = [pod for pod, until in waits if now >= until]
    if not due:
        return replace(seen, wake_at=(*seen.wake_at, *(until for _, until in waits)))
    left = tuple(pod for pod in seen.live if pod not in due)
    times = UNPLACED_SECONDS, LONGEST_UNPLACED_SECONDS
    if _asks_for_nodes(seen, due[0]):
        why = f"No node came within {_patience(seen, due[0]):.0f} s for {due[0].name}: {due[0].unschedulable}"
        return _try_later(seen, now, left, why, least=_minimum(seen), times=times, waits_for="Nodes")
    why = f"the scheduler cannot place {due[0].name}: {due[0].unschedulable}"
    return _try_later(seen, now, left, why, least=1, times=times)


def _is_awaited(seen: Observation, pod: OwnPod) -> bool:
    """Whether it is a master that the others wait for, for as long as they do."""
    return pod.role == "master" and seen.status.master_lost_time is not None


def _patience(seen: Observation, pod: OwnPod) -> float:
    """How long the scheduler gets for it, in seconds."""
    provisioning = seen.job.provisioning
    return provisioning.timeout_seconds if provisioning and _asks_for_nodes(seen, pod) else STUCK_SECONDS


def _asks_for_nodes(seen: Observation, pod: OwnPod) -> bool:
    """Whether no node was chosen for it, and those that have one do not make the minimum."""
    placed = sum(member.node is not None for member in seen.live)
    return seen.job.provisioning is not None and pod.node is None and placed < _minimum(seen)


def _minimum(seen: Observation) -> int:
    assert seen.job.spec is not None
    return seen.job.spec.min_replicas


def _try_later(
    seen: Observation,
    now: float,
    left: tuple[OwnPod, ...],
    why: str,
    *,
    least: int,
    times: tuple[int, int],
    waits_for: Literal["Nodes"] | None = None,
) -> Observation:
    """Only `left` can be had now, which go too if they are fewer than `least`.

    A larger size is tried again after the first of `times`, doubled each time up to the second, and up to half as long
    again, so that two jobs that stand in each other's way do not try together for ever. Where it `waits_for` nodes, no
    size is ruled out meanwhile: only nodes are not asked for.
    """
    attempt = (seen.status.retry.attempt if seen.status.retry else 0) + 1
    wait = min(times[0] * 2 ** min(attempt - 1, 30), times[1])
    wait += wait * (sum(map(ord, seen.job.uid)) % 50) // 100
    size = None if waits_for else len(left) + 1
    retry = Retry(reason=why, not_before=at(now + wait), attempt=attempt, size=size, waits_for=waits_for)
    status = seen.status.model_copy(update={"retry": retry, "replicas": len(left)})
    event = Event("ScaleUpBlocked", f"{why.rstrip('.')}. Tried again in {wait} s.", "Warning")
    if len(left) < least or left[0].role != "master":
        return replace_all(seen, end_incarnation(status, target_replicas=0), event)
    gone = (*seen.gone, *((pod, why) for pod in seen.live if pod not in left))
    return replace(seen, status=status, live=left, gone=gone, commit=True, events=(*seen.events, event))
