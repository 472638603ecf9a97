"""Pods that cannot be had now: refused by the API server, without a node, or with a node and unable to start there.

They are taken back, and tried again later by themselves. If only the chosen node was in vain, they are tried at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from elastic_api.status import ConditionType, Retry
from elastic_operator.plan.facts.decisions import Event
from elastic_operator.plan.facts.job import STARTS, OwnPod
from elastic_operator.plan.facts.text import listed
from elastic_operator.plan.facts.times import at, doubled, seconds
from elastic_operator.plan.facts.useless_tries import rest_seconds
from elastic_operator.plan.job.elastic_rules import next_master
from elastic_operator.plan.job.losses import reported
from elastic_operator.plan.job.observation import Observation, end_incarnation, master_of, replace_all, set_condition
from elastic_worker.contract import ROLE_MASTER

BLOCKED_SECONDS = 10
LONGEST_BLOCKED_SECONDS = 300
"""How long pods that the API server refuses wait: at first, and doubled each time up to the longest (27)."""
STUCK_SECONDS = 60.0
"""A pod that the scheduler cannot place for this long is taken back (10)."""
UNPLACED_SECONDS = 30
LONGEST_UNPLACED_SECONDS = 1800
"""How long it then waits: at first, and doubled each time up to the longest."""
UNPLACED = "the scheduler cannot place"
"""The first words of the reason of such a try. They mark the tries that count as in vain (139)."""
NOT_STARTED_SECONDS = 60
LONGEST_NOT_STARTED_SECONDS = 3600
"""How long pods that did not start wait: at first, and doubled each time up to the longest. These are
Kueue's defaults.
"""
UNNAMED = 12
"""Pods get this many times as long if the kubelet names no trouble: a volume is attached, or its files get another
owner, or an older kubelet pulls an image.
"""


def shut_out(obs: Observation, now: float) -> Observation:
    """Pods planned for a node that has closed or filled since, and not bound to it, are created elsewhere (142).

    They have done no work and nobody is to blame, so nothing is counted and nothing waits. If the master is among them,
    the others of a Torchrun job have not trained yet, and those of an Elastic job wait for the next master.
    """
    assert obs.job.spec is not None
    why = obs.job.shut_out
    going = [pod for pod in obs.live if pod.uid in why]
    if not going:
        return obs
    told = f"{listed([pod.name for pod in going])}: {why[going[0].uid]}. Not started yet, so planned anew."
    event, left = Event("PodsPlannedAnew", told), tuple(pod for pod in obs.live if pod.uid not in why)
    counted = len(reported(obs)) - len(reported(replace(obs, live=left)))
    status = obs.status.model_copy(update={"replicas": max(0, obs.status.replicas - counted)})
    if left and left[0].role != ROLE_MASTER and going[0].role == ROLE_MASTER:
        if not obs.job.spec.is_elastic:
            return replace_all(obs, end_incarnation(status), event)
        status = next_master(status, now)
    to_delete = (*obs.to_delete, *((pod, why[pod.uid]) for pod in going))
    return replace(obs, status=status, live=left, to_delete=to_delete, commit=True, events=(*obs.events, event))


def refused(obs: Observation, now: float) -> Observation:  # noqa: ARG001 - a rule like the others
    """Pods of a job below its minimum go if no more can be created before somebody edits it."""
    assert obs.job.spec is not None
    if not obs.job.needs_edit or not obs.live:
        return obs
    if len(obs.live) >= obs.job.spec.min_replicas and master_of(obs) is not None:
        return obs
    event = Event("ScaleUpBlocked", f"{obs.job.needs_edit} Its other pods are given back.", "Warning")
    return replace_all(obs, end_incarnation(obs.status, target_replicas=0), event)


def blocked(obs: Observation, now: float) -> Observation:
    """The API server accepts no more pods than there are. More are tried again later (27).

    Pods that do not make the minimum go meanwhile, since they may stand in others' way, as of two jobs under one quota.
    Leaving pods may be the ones in the way, so these are waited for first.
    """
    assert obs.job.spec is not None
    leaving = any(pod.deleting_since is not None for pod in obs.job.pods)
    if not obs.job.blocked or leaving or obs.job.spec.suspend:
        return obs
    least, times = obs.job.spec.min_replicas, (BLOCKED_SECONDS, LONGEST_BLOCKED_SECONDS)
    return _try_later(obs, now, obs.live, obs.job.blocked, least=least, times=times)


def stuck(obs: Observation, now: float) -> Observation:
    """Take back pods that the scheduler cannot place, and do not try their size for a while (10).

    Pods that ask for new nodes get longer. If no node comes, the rest of the minimum goes with them (49).
    """
    waiting = [pod for pod in obs.live if pod.unschedulable and pod.unschedulable_since is not None]
    if not waiting:
        return obs
    pods = [pod for pod in waiting if not _is_awaited(obs, pod)]
    waits = [(pod, (pod.unschedulable_since or 0.0) + _patience(obs, pod)) for pod in pods]
    due = [pod for pod, until in waits if now >= until]
    if not due:
        return replace(obs, wake_at=(*obs.wake_at, *(until for _, until in waits)))
    left = tuple(pod for pod in obs.live if pod not in due)
    times = UNPLACED_SECONDS, LONGEST_UNPLACED_SECONDS
    if _asks_for_nodes(obs, due[0]):
        why = f"No node came within {_patience(obs, due[0]):.0f} s for {due[0].name}: {due[0].unschedulable}"
        return _try_later(obs, now, left, why, least=_minimum(obs), times=times, waits_for="Nodes")
    why = f"{UNPLACED} {due[0].name}: {due[0].unschedulable}"
    return _try_later(obs, now, left, why, least=1, times=times)


def not_started(obs: Observation, now: float) -> Observation:
    """Take back pods that have a node and do not start there, for want of an image, a volume or a setting (136).

    The other pods go with them if they are fewer than the minimum: they would hold GPUs for nothing. A running init
    container is the user's own code, like the main container later. An image that is being pulled has all the time it
    needs: the container runtime itself gives up a pull that stands still, and the kubelet then names that.
    """
    waiting = [pod for pod in obs.live if _starts(pod) and not _is_awaited(obs, pod)]
    waiting = [pod for pod in waiting if pod.node not in obs.unready_nodes and not pod.main.is_on_its_way]
    if not obs.job.start_seconds or obs.finishing or not waiting:
        return obs
    waits = [(pod, _since(pod) + _start_seconds(obs, pod)) for pod in waiting]
    due = [pod for pod, until in waits if now >= until]
    if not due:
        return replace(obs, wake_at=(*obs.wake_at, *(until for _, until in waits)))
    why, left = _why_not_started(obs, due), tuple(pod for pod in obs.live if pod not in due)
    times = NOT_STARTED_SECONDS, LONGEST_NOT_STARTED_SECONDS
    obs = _try_later(obs, now, left, why, least=_minimum(obs), times=times)
    reason = due[0].main.waiting_reason or "ContainerCreating"
    status = set_condition(obs.status, ConditionType.PODS_NOT_STARTED, "True", reason, why, obs.job.generation, now)
    return replace(obs, status=status)


def takes_from(retry: Retry | None) -> float:
    """When (epoch seconds) pods of others go again for a job whose pods the scheduler placed nowhere, time after time
    (139).

    It gets idle GPUs as before.
    """
    if retry is None or retry.waits_for or not retry.reason.startswith(UNPLACED):
        return 0.0
    rest = rest_seconds(retry.attempt)
    return seconds(retry.not_before) + rest if rest else 0.0


def _starts(pod: OwnPod) -> bool:
    """Whether it has a node, and its main container has not run there yet."""
    main = pod.main
    return pod.bound and pod.phase == "Pending" and main.running_since is None and main.exit_code is None


def _since(pod: OwnPod) -> float:
    """The time since when it waits for its present step: images of later containers are pulled when the earlier ones
    end.
    """
    bound = pod.created if pod.bound_since is None else pod.bound_since
    return max(bound, pod.main.waiting_since or bound)


def _start_seconds(obs: Observation, pod: OwnPod) -> int:
    """How long the pod has to start."""
    return obs.job.start_seconds * (UNNAMED if pod.main.waiting_reason in STARTS else 1)


def _why_not_started(obs: Observation, due: list[OwnPod]) -> str:
    """Names the first pod, the container and the reason."""
    pod, main = due[0], due[0].main
    more = f" ({len(due) - 1} more have not started)" if len(due) > 1 else ""
    if main.waiting_reason in STARTS:
        said = f"{main.waiting_reason or 'ContainerCreating'}. Its events say more: kubectl describe pod {pod.name}"
    else:
        said = f"{main.waiting_reason}: {main.waiting_message}".rstrip(": ")
    container = f"container {main.waiting_container}: " if main.waiting_container else ""
    return f"{pod.name} has not started on node {pod.node} in {_start_seconds(obs, pod)} s{more}: {container}{said}"


def _is_awaited(obs: Observation, pod: OwnPod) -> bool:
    """Whether it is a master that the others wait for. They limit that time themselves (`elastic_rules.absence`)."""
    return pod.role == ROLE_MASTER and obs.status.master_lost_time is not None


def _patience(obs: Observation, pod: OwnPod) -> float:
    """How long the scheduler has to place it, in seconds."""
    provisioning = obs.job.provisioning
    return provisioning.timeout_seconds if provisioning and _asks_for_nodes(obs, pod) else STUCK_SECONDS


def _asks_for_nodes(obs: Observation, pod: OwnPod) -> bool:
    """Whether no node was chosen for it, and the pods with a node do not make the minimum."""
    placed = sum(member.node is not None for member in obs.live)
    return obs.job.provisioning is not None and pod.node is None and placed < _minimum(obs)


def _minimum(obs: Observation) -> int:
    assert obs.job.spec is not None
    return obs.job.spec.min_replicas


def _try_later(
    obs: Observation,
    now: float,
    left: tuple[OwnPod, ...],
    why: str,
    *,
    least: int,
    times: tuple[int, int],
    waits_for: Literal["Nodes"] | None = None,
) -> Observation:
    """Keep only the pods `left`, or none of them if they are fewer than `least`, and try again later.

    The next try of a larger size comes after the first of `times`, doubled each time up to the second, and longer by up
    to half, so that two jobs in each other's way do not try together for ever. With `waits_for`, sizes are tried
    meanwhile, and only nodes are not asked for. Tries that the scheduler placed nowhere are counted by themselves
    (139).
    """
    before = obs.status.retry
    goes_on = before is not None and (before.reason.startswith(UNPLACED) or not why.startswith(UNPLACED))
    attempt = (before.attempt if before is not None and goes_on else 0) + 1
    wait = doubled(*times, attempt)
    wait += wait * (sum(map(ord, obs.job.uid)) % 50) // 100
    size = None if waits_for else len(left) + 1
    retry = Retry(reason=why, not_before=at(now + wait), attempt=attempt, size=size, waits_for=waits_for)
    status = obs.status.model_copy(update={"retry": retry, "replicas": len(left)})
    event = Event("ScaleUpBlocked", f"{why.rstrip('.')}. Tried again in {wait} s.", "Warning")
    if len(left) < least or left[0].role != ROLE_MASTER:
        return replace_all(obs, end_incarnation(status, target_replicas=0), event)
    to_delete = (*obs.to_delete, *((pod, why) for pod in obs.live if pod not in left))
    return replace(obs, status=status, live=left, to_delete=to_delete, commit=True, events=(*obs.events, event))
