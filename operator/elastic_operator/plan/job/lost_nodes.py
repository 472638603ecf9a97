"""Decides which nodes with pods of a job are lost. For nodes that are not Ready, the decision may still be open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from elastic_operator.plan.job.observation import NodeState, Observation
from elastic_operator.plan.job.still_training import fresh_until, still_training
from elastic_operator.plan.job.survivors import SURVIVOR_READ_SECONDS, decided_at, survivors


def find_lost_nodes(obs: Observation, now: float) -> Observation:
    """Find the states of the nodes that are not Ready (86, 92, 146), and when these may change."""
    unready, outage = obs.job.context.unready, obs.job.context.node_outage
    if not unready:
        return obs
    patience = obs.spec.recovery.node_loss_seconds
    may_be_lost_at = {name: -inf if node.out_of_service else node.since + patience for name, node in unready.items()}
    kept = outage.kept_nodes if outage else frozenset()
    in_question = {node: time for node, time in may_be_lost_at.items() if -inf < time <= now and node not in kept}
    training = still_training(obs, in_question, now)
    obs = _read_logs_of_survivors(obs, may_be_lost_at, now)
    decided = decided_at(obs, now)
    states: dict[str, NodeState] = {}
    for node, time in may_be_lost_at.items():
        states[node], until = NodeState.LOST, inf
        if now < time:
            states[node], until = NodeState.UNDECIDED, time
        elif outage and node in kept:
            states[node], until = NodeState.KEPT, outage.until
        elif node in training:
            states[node], until = NodeState.TRAINING, fresh_until(obs.job, now)
        elif node in in_question and now < decided:
            states[node], until = NodeState.UNDECIDED, decided
        if until < inf:
            obs = obs.again_at(until)
    return replace(obs, unready_nodes=states)


def _read_logs_of_survivors(obs: Observation, may_be_lost_at: Mapping[str, float], now: float) -> Observation:
    """Have the logs of the job's pods on Ready nodes read (146), or note when the reading is to begin."""
    staying = survivors(obs)
    if staying is None:
        return obs
    outage = obs.job.context.node_outage
    times = [time for node, time in may_be_lost_at.items() if outage is None or node not in outage.kept_nodes]
    begins = min(times, default=inf) - SURVIVOR_READ_SECONDS
    if now < begins:
        return obs.again_at(begins) if begins < inf else obs
    return replace(obs, survivors=staying)


def why_lost(obs: Observation, node: str) -> str:
    """Why the pods on that node are lost, in words."""
    if obs.job.context.unready[node].out_of_service:
        return f"node {node} is out of service"
    return f"node {node} has been unreachable for {obs.spec.recovery.node_loss_seconds} s"
