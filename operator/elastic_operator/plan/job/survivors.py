"""Finds the pods of a Torchrun job that train on after the loss of a node. They are not replaced (146).

Nothing ends the connections to a machine that is off, so the other pods may wait for that machine forever. If they do,
all pods are replaced (47). If the connections have ended, torchrun forms a smaller group within seconds. Process 1 of
each pod writes its group into the log (`build/torchrun_group.py`): if all these pods are one group of exactly their
number, they have no connection to another pod. The logs are read before the node is given up, so by default this rule
makes no pod wait longer.
"""

from __future__ import annotations

from math import inf

from elastic_operator.plan.facts.job import Survivors
from elastic_operator.plan.facts.pod_order import master_first, master_in
from elastic_operator.plan.job.observation import Observation, is_running, present_pods

SURVIVOR_READ_SECONDS = 20.0
"""The logs are read for at least this long before a node is given up. A group needs 10 s to form without a lost pod.
Process 1 and the reading of logs need some more. Kubernetes notices only after 40 s that a node is off. A survivor that
is lost meanwhile does not restart this time; otherwise pods that come and go would postpone the end without limit.
"""
BEGIN_SECONDS = 5.0
"""A working operator begins the reading within this time."""


def survivors(obs: Observation) -> Survivors | None:
    """The pods that could be a group without the nodes that are not Ready; None if there can be no such group.

    torchrun's store is lost with the master, and fewer pods than the minimum are no group.
    """
    if obs.job.is_elastic:
        return None
    members, unready = [pod for pod in present_pods(obs) if not pod.ended], obs.job.context.unready
    if not any(pod.node in unready for pod in members):
        return None
    staying = (pod for pod in members if pod.node not in unready and pod.deleting_since is None)
    running = sorted(filter(is_running, staying), key=master_first)
    if len(running) < obs.spec.minimum or master_in(running) is None:
        return None
    return Survivors(tuple(running), min(node.since for node in unready.values()))


def trains_on(obs: Observation) -> bool:
    """Whether the survivors are a group of their own."""
    staying, group = obs.survivors, obs.job.feedback.group
    return staying is not None and group is not None and group.pods == staying.uids


def decided_at(obs: Observation, now: float) -> float:
    """By when it is known at the latest whether the survivors are a group; -inf if it is known, if nobody reads the
    logs, or if the clock was set back since the reading began.
    """
    if obs.survivors is None or trains_on(obs):
        return -inf
    group = obs.job.feedback.group
    if group is None:
        return now + BEGIN_SECONDS if obs.job.feedback.pods_are_asked else -inf
    return group.read_since + SURVIVOR_READ_SECONDS if group.read_since <= now + 1 else -inf
