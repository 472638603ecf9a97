"""Keeps a job from nodes whose kubelets refused its pods: for a while, longer each time (137)."""

from __future__ import annotations

from dataclasses import replace

from elastic_api.status import MAX_AVOIDED, AvoidedNode, JobStatus, rfc3339
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.text import sentence
from elastic_operator.plan.facts.times import end_of_wait, seconds
from elastic_operator.plan.facts.waits import avoided_seconds
from elastic_operator.plan.job.observation import Observation

ONE_LOSS_SECONDS = 10.0
"""Losses within this time after the first one count as one loss: they have one cause, a machine or an action."""
REFUSAL_REMEMBERED_SECONDS = 600.0
"""The refusals are forgotten this long after the node is not avoided any more."""


def refused_by(obs: Observation) -> dict[str, OwnPod]:
    """The nodes whose kubelets have just refused members, each with one of these members."""
    pods = (deletion.pod for deletion in obs.to_delete if deletion.pod.incarnation == obs.status.incarnation)
    return {pod.node: pod for pod in pods if pod.refused and pod.node}


def remembered(status: JobStatus, now: float) -> dict[str, AvoidedNode]:
    """The nodes that are avoided now or were avoided lately, by name."""
    return {node.name: node for node in status.avoided_nodes if now < seconds(node.until) + REFUSAL_REMEMBERED_SECONDS}


def avoided_nodes(obs: Observation, now: float) -> list[AvoidedNode]:
    """The nodes to avoid, the latest ones last."""
    known = remembered(obs.status, now)
    for node, pod in refused_by(obs).items():
        before = known.pop(node, None)
        if before is None or not is_together(before, now):
            times = 1 if before is None else before.times + 1
            until = end_of_wait(now + avoided_seconds(times))
            before = AvoidedNode(name=node, until=until, times=times, reason=f"{pod.name}: {pod.disrupted}")
        known[node] = before
    return list(known.values())[-MAX_AVOIDED:]


def avoiding(obs: Observation, now: float) -> Observation:
    """The observation with the nodes that the job avoids now."""
    known = [node for node in obs.status.avoided_nodes if now < seconds(node.until)]
    if not known:
        return obs
    avoided = {
        node.name: sentence(
            f"The job avoids node {node.name} until {rfc3339(node.until)}, because its kubelet refused {node.reason}"
        )
        for node in known
    }
    return replace(obs.again_at(*(seconds(node.until) for node in known)), avoided=avoided)


def is_together(known: AvoidedNode, now: float) -> bool:
    """Whether the node's present refusal counts as one with its last one."""
    return now < seconds(known.until) - avoided_seconds(known.times) + ONE_LOSS_SECONDS
