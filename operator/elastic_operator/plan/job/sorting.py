"""Which pods of a job are members, which must go, and of which nodes it is not known yet whether they are lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.roles import master_first
from elastic_operator.plan.job.failures import has_failed, short_failure, was_asked_to_go
from elastic_operator.plan.job.observation import Observation, is_superseded, present
from elastic_operator.plan.job.still_training import fresh_until, still_training
from elastic_operator.plan.job.survivors import ASK_SECONDS, decided_at, survivors
from elastic_worker.contract import ROLE_MASTER


def judge_nodes(obs: Observation, unready_since: Mapping[str, float], now: float) -> Observation:
    """Which nodes of its pods are not Ready, which of these are given up (86, 92 and 146), and when that may change."""
    assert obs.job.spec is not None
    patience, disruption = obs.job.spec.recovery.node_loss_seconds, obs.job.disruption
    unready = {node: unready_since[node] for pod in obs.job.pods if (node := pod.node) and node in unready_since}
    if not unready:
        return obs
    due = {node: since + patience for node, since in unready.items() if now >= since + patience}
    kept = disruption.kept & due.keys() if disruption else frozenset()
    asked_about = {node: time for node, time in due.items() if node not in kept and time > -inf}
    training = still_training(obs.job, obs.status, asked_about, now) if asked_about else frozenset()
    obs = _ask_the_others(obs, unready, now)
    decided = decided_at(obs.job, obs.survivors, now)
    undecided = frozenset(asked_about) if now < decided else frozenset()
    wake = {node: since + patience for node, since in unready.items() if node not in due}
    wake |= dict.fromkeys(training, fresh_until(obs.job, now))
    wake |= dict.fromkeys(undecided, decided)
    wake |= dict.fromkeys(kept, disruption.until if disruption else inf)
    return replace(
        obs,
        unready_nodes=frozenset(unready),
        lost_nodes=frozenset(due) - kept - training - undecided,
        kept_nodes=kept,
        training_nodes=training,
        wake_at=(*obs.wake_at, *(time for time in wake.values() if time < inf)),
    )


def _ask_the_others(obs: Observation, unready: Mapping[str, float], now: float) -> Observation:
    """Start to read the logs of the job's pods on Ready nodes (146), or note when that is to begin."""
    assert obs.job.spec is not None
    left = survivors(obs.job, obs.status, unready)
    if left is None:
        return obs
    patience, disruption = obs.job.spec.recovery.node_loss_seconds, obs.job.disruption
    times = [time for node, time in unready.items() if disruption is None or node not in disruption.kept]
    begins = min(times, default=inf) + patience - ASK_SECONDS
    if now < begins:
        return replace(obs, wake_at=(begins,) if begins < inf else ())
    return replace(obs, survivors=left)


def sort_pods(obs: Observation, unready_since: Mapping[str, float]) -> Observation:
    """Sort the pods into members and pods that must go, each with the reason."""
    assert obs.job.spec is not None
    live: list[OwnPod] = []
    to_delete: list[tuple[OwnPod, str]] = []
    for pod in sorted(obs.job.pods, key=master_first):
        if pod.node and pod.node in obs.lost_nodes and not pod.ended:
            to_delete.append((pod, _why_lost(obs, pod.node, unready_since[pod.node])))
        elif pod.deleting_since is not None:
            continue
        elif pod.incarnation != obs.status.incarnation:
            to_delete.append((pod, f"incarnation {pod.incarnation} is over"))
        elif is_superseded(pod, obs.status):
            to_delete.append((pod, f"it is master {pod.master_epoch}, and there is a newer one"))
        elif pod.ended and pod.disrupted:
            to_delete.append((pod, pod.disrupted))
        elif obs.job.spec.is_elastic and pod.role != ROLE_MASTER and has_failed(pod):
            to_delete.append((pod, short_failure(pod)))
        elif not pod.ended:
            live.append(pod)
    finishing = any(p.main.exit_code == 0 and not was_asked_to_go(p) for p in present(obs))
    return replace(obs, live=tuple(live), to_delete=tuple(to_delete), finishing=finishing)


def sort_unread(obs: Observation) -> Observation:
    """Sort the pods of a job without a readable spec: members stay, pods of an earlier incarnation go (99)."""
    pods = sorted(obs.job.pods, key=master_first)
    staying = [pod for pod in pods if pod.deleting_since is None]
    old = [pod for pod in staying if pod.incarnation != obs.status.incarnation]
    live = tuple(pod for pod in staying if pod not in old and not pod.ended)
    return replace(obs, live=live, to_delete=tuple((pod, f"incarnation {pod.incarnation} is over") for pod in old))


def _why_lost(obs: Observation, node: str, since: float) -> str:
    assert obs.job.spec is not None
    patience = obs.job.spec.recovery.node_loss_seconds
    return f"node {node} is out of service" if since == -inf else f"node {node} has been unreachable for {patience} s"
