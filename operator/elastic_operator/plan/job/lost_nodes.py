"""Decides which nodes with pods of a job are lost. For nodes that are not Ready, the decision may still be open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.still_training import fresh_until, still_training
from elastic_operator.plan.job.survivors import SURVIVOR_READ_SECONDS, decided_at, survivors


def find_lost_nodes(obs: Observation, now: float) -> Observation:
    """The observation with the nodes of the job's pods that are not Ready, which of them are given up (86, 92 and 146),
    and when this may change.
    """
    patience, outage = obs.spec.recovery.node_loss_seconds, obs.job.context.node_outage
    unready = obs.job.context.unready
    if not unready:
        return obs
    due = {node: since + patience for node, since in unready.items() if now >= since + patience}
    kept = outage.kept_nodes & due.keys() if outage else frozenset()
    in_question = {node: time for node, time in due.items() if node not in kept and time > -inf}
    training = still_training(obs.job, obs.status, in_question, now) if in_question else frozenset()
    obs = _read_logs_of_survivors(obs, unready, now)
    decided = decided_at(obs.job, obs.survivors, now)
    undecided = frozenset(in_question) if now < decided else frozenset()
    wake = {node: since + patience for node, since in unready.items() if node not in due}
    wake |= dict.fromkeys(training, fresh_until(obs.job, now))
    wake |= dict.fromkeys(undecided, decided)
    wake |= dict.fromkeys(kept, outage.until if outage else inf)
    return replace(
        obs,
        unready_nodes=frozenset(unready),
        lost_nodes=frozenset(due) - kept - training - undecided,
        kept_nodes=kept,
        training_nodes=training,
        requeue_at=(*obs.requeue_at, *(time for time in wake.values() if time < inf)),
    )


def _read_logs_of_survivors(obs: Observation, unready: Mapping[str, float], now: float) -> Observation:
    """Have the logs of the job's pods on Ready nodes read (146), or note when the reading is to begin."""
    staying = survivors(obs.job, obs.status, unready)
    if staying is None:
        return obs
    patience, outage = obs.spec.recovery.node_loss_seconds, obs.job.context.node_outage
    times = [time for node, time in unready.items() if outage is None or node not in outage.kept_nodes]
    begins = min(times, default=inf) + patience - SURVIVOR_READ_SECONDS
    if now < begins:
        return replace(obs, requeue_at=(*obs.requeue_at, begins)) if begins < inf else obs
    return replace(obs, survivors=staying)


def why_lost(obs: Observation, node: str) -> str:
    """Why the pods on that node are lost, in words."""
    since, patience = obs.job.context.unready[node], obs.spec.recovery.node_loss_seconds
    return f"node {node} is out of service" if since == -inf else f"node {node} has been unreachable for {patience} s"
