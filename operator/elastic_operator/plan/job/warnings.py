"""Warnings about a job that works nevertheless: one condition for each, True while there is a reason.

All share one rule, because nearly every job has no warning in nearly every pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from elastic_api.status import ConditionType, RetryCause, SizeReason
from elastic_operator.plan.facts.decisions import Event, EventReason
from elastic_operator.plan.facts.job import SET_BY_OPERATOR
from elastic_operator.plan.facts.text import Reason, listed, sentence
from elastic_operator.plan.job.flapping import why_held
from elastic_operator.plan.job.master_report import keeps_status, report_of
from elastic_operator.plan.job.observation import NodeState, Observation

WARNINGS = (
    ConditionType.NODES_UNREACHABLE,
    ConditionType.DEVICES_NOT_COUNTED,
    ConditionType.PRIORITY_IGNORED,
    ConditionType.FIELDS_IGNORED,
    ConditionType.FLAGS_NOT_USED,
    ConditionType.POD_PRIORITY_IGNORED,
    ConditionType.PODS_GIVEN_UP,
    ConditionType.PODS_NOT_STARTED,
    ConditionType.FLAPPING,
)


def warn(obs: Observation, now: float) -> Observation:
    """The job with its present warning conditions, and an event for each condition that becomes True."""
    reasons = {kind: Reason(why.code, sentence(why.message)) for kind, why in _reasons(obs)}
    conditions = obs.status.conditions
    warned = {condition.type for condition in conditions if condition.type in WARNINGS and condition.status == "True"}
    for kind in WARNINGS:
        if kind not in reasons and kind not in warned:
            continue
        reason = reasons.get(kind, Reason("Over", ""))
        obs = obs.with_condition(kind, kind in reasons, reason, now)
        if kind not in warned:
            obs = obs.with_event(Event(EventReason(kind), reason.message, "Warning"))
    return obs


def _reasons(obs: Observation) -> Iterator[tuple[ConditionType, Reason]]:
    """Each condition that is True, with its reason."""
    job = obs.job
    if keeps_status(obs):
        told = filter(None, map(obs.status.condition, (ConditionType.FLAGS_NOT_USED, ConditionType.PODS_GIVEN_UP)))
        yield from ((ConditionType(one.type), Reason(one.reason, one.message)) for one in told if one.status == "True")
    if obs.nodes_in(NodeState.KEPT) and job.context.node_outage is not None:
        yield ConditionType.NODES_UNREACHABLE, Reason("ManyAtOnce", job.context.node_outage.message)
    elif training := obs.nodes_in(NodeState.TRAINING):
        text = (
            f"These nodes are not Ready: {listed(training)}. The job's master still reports that its pods there train,"
            " so the operator keeps these pods. Check the kubelet of each node, and the network between the node and"
            " the API server. Delete a node that is dead, or taint it node.kubernetes.io/out-of-service."
        )
        yield ConditionType.NODES_UNREACHABLE, Reason("StillTraining", text)
    yield from job.context.warnings.items()
    if ConditionType.FLAGS_NOT_USED not in job.context.warnings and (flags := _flags_of_its_command(obs)):
        yield ConditionType.FLAGS_NOT_USED, Reason(SET_BY_OPERATOR, flags)
    if given_up := _given_up(obs):
        yield ConditionType.PODS_GIVEN_UP, Reason("CannotBeEnded", given_up)
    known, failed = obs.status.condition(ConditionType.PODS_NOT_STARTED), obs.status.failed_size
    if known is not None and failed is not None and failed.cause is RetryCause.PODS_NOT_STARTED:
        yield ConditionType.PODS_NOT_STARTED, Reason(known.reason, known.message)
    if held := why_held(obs.status):
        yield ConditionType.FLAPPING, Reason(SizeReason.CHANGED_TOO_OFTEN, held)


def _flags_of_its_command(obs: Observation) -> str:
    """The flags in a script that the command runs, which only the launcher has read."""
    report = report_of(obs)
    if not report or not report.unused_flags:
        return ""
    return (
        f"torchrun was called with {' '.join(report.unused_flags)}. These flags have no effect; remove them."
        " The operator sets the number of pods and the rendezvous address."
    )


def _given_up(obs: Observation) -> str:
    """The pods that the master has given up though they run, each with its node (105)."""
    report = report_of(obs)
    if not report or not report.given_up:
        return ""
    node_of = {pod.name: pod.node for pod in obs.members}
    named = "; ".join(f"{name} on node {node_of[name]}: {why}" for name, why in report.given_up if name in node_of)
    text = f"The master has given up {named}. The other pods continue."
    return f"{text} Reboot the node: the pod may not stop until then." if named else ""
