"""Handles pods that the API server refuses, or that get no node.

The operator deletes these pods and creates them again later, even without an edit. If only the chosen node was wrong,
it creates them again at once.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from elastic_api.status import Retry, RetryCause
from elastic_operator.attempts import doubled
from elastic_operator.plan.facts.decisions import Event, EventReason
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.pod_order import master_in
from elastic_operator.plan.facts.text import joined, listed, sentence
from elastic_operator.plan.facts.times import end_of_wait, seconds
from elastic_operator.plan.facts.waits import UNSCHEDULABLE_SECONDS, WAITS, futile_backoff_seconds
from elastic_operator.plan.job.elastic_rules import next_master
from elastic_operator.plan.job.losses import end_backoff_for_master, reported
from elastic_operator.plan.job.observation import Observation, master_of, replace_all
from elastic_worker.contract import ROLE_MASTER


def recreate_misplaced_pods(obs: Observation, now: float) -> Observation:
    """Create pods elsewhere that are not bound, and whose planned node has closed or filled since (142).

    They have done no work and nothing is to blame, so no loss is counted and no back-off begins. The hold (143) of a
    job without other pods ends. If the master is among them, the other pods of a Torchrun job have not trained yet, and
    those of an Elastic job wait for the next master.
    """
    why = obs.job.context.misplaced
    going = [pod for pod in obs.members if pod.uid in why]
    if not going:
        return obs
    them = "this pod, which" if len(going) == 1 else "these pods, which"
    again = f"The operator creates {them} had not started, elsewhere."
    text = joined(f"{listed([pod.name for pod in going])} cannot start: {why[going[0].uid]}", again)
    event, staying = Event(EventReason.PODS_PLANNED_ANEW, text), tuple(pod for pod in obs.members if pod.uid not in why)
    counted = len(reported(obs)) - len(reported(replace(obs, members=staying)))
    names = {pod.name for pod in going}
    # So `record_lost_pods` does not count them as lost.
    remaining = [pod for pod in obs.status.pods if pod.name not in names]
    obs = obs.with_status(replicas=max(0, obs.status.replicas - counted), pods=remaining)
    if not staying:
        obs = obs.with_status(held_until=None)
    if staying and master_in(staying) is None and master_in(going) is not None:
        if not obs.spec.is_elastic:
            return replace_all(obs, event)
        obs = next_master(end_backoff_for_master(obs, now), now)
    return replace(obs.decided(event, [obs.deletion(pod, why[pod.uid]) for pod in going]), members=staying)


def delete_rejected_pods(obs: Observation, now: float) -> Observation:  # noqa: ARG001 - a rule like the others
    """Delete the pods of a job below its minimum if no more can be created before somebody edits the job."""
    if not obs.job.needs_edit or not obs.members:
        return obs
    if len(obs.members) >= obs.spec.minimum and master_of(obs) is not None:
        return obs
    text = joined(obs.job.needs_edit, "The job's other pods are deleted, because they are fewer than its minimum.")
    event = Event(EventReason.SCALE_UP_BLOCKED, text, "Warning")
    return replace_all(obs.with_status(target_replicas=0), event)


def back_off_after_rejection(obs: Observation, now: float) -> Observation:
    """Back off after the API server has refused pods of the job. The operator tries to create pods again later (27).

    Pods below the minimum are deleted meanwhile, because they may block other jobs, such as a second job under the same
    quota. If pods of the job are being deleted, these may be the obstacle, so the operator waits until they are
    removed. A refusal counts once. The feedback has it until the operator knows that a status which counts it was
    written.
    """
    leaving = any(pod.deleting_since is not None for pod in obs.job.pods)
    if not obs.job.feedback.pods_rejected or leaving or obs.spec.suspend or _is_counted(obs, now):
        return obs
    return back_off(obs, now, obs.members, RetryCause.FAILED_CREATE, obs.job.feedback.pods_rejected)


def _is_counted(obs: Observation, now: float) -> bool:
    """Whether the job waits already, because the API server has refused its next pod."""
    failed = obs.status.failed_size
    if failed is None or failed.cause is not RetryCause.FAILED_CREATE:
        return False
    return now < seconds(failed.not_before) and (failed.size or 1) <= len(obs.members) + 1


def delete_unschedulable_pods(obs: Observation, now: float) -> Observation:
    """Delete pods that the scheduler cannot place, and do not try their size for a while (10).

    Pods that request new nodes have more time. If no node comes, the rest of the minimum is deleted with them (49).
    """
    waiting = [pod for pod in obs.members if pod.unschedulable and pod.unschedulable_since is not None]
    if not waiting:
        return obs
    pods = [pod for pod in waiting if not is_awaited(obs, pod)]
    waits = [(pod, (pod.unschedulable_since or 0.0) + _patience(obs, pod)) for pod in pods]
    due = [pod for pod, until in waits if now >= until]
    if not due:
        return obs.again_at(*(until for _, until in waits))
    staying = tuple(pod for pod in obs.members if pod not in due)
    if _requests_nodes(obs, due[0]):
        why = f"No node was added within {_patience(obs, due[0]):.0f} s for {due[0].name}: {due[0].unschedulable}"
        return back_off(obs, now, staying, RetryCause.NODES_NOT_PROVISIONED, why)
    why = f"The scheduler cannot place {due[0].name}: {due[0].unschedulable}"
    return back_off(obs, now, staying, RetryCause.UNSCHEDULABLE, why)


def may_preempt_at(failed: Retry | None) -> float:
    """When (epoch seconds) pods may be preempted again for a job whose pods the scheduler repeatedly placed nowhere
    (139); -inf for a job without such pods.

    The job gets idle GPUs as before.
    """
    if failed is None or failed.cause is not RetryCause.UNSCHEDULABLE:
        return -inf
    backoff = futile_backoff_seconds(failed.attempt)
    return seconds(failed.not_before) + backoff if backoff else -inf


def is_awaited(obs: Observation, pod: OwnPod) -> bool:
    """Whether the pod is a master that other pods wait for. `elastic_rules.end_without_master` limits that time."""
    return pod.role == ROLE_MASTER and obs.status.master_lost_time is not None


def _patience(obs: Observation, pod: OwnPod) -> float:
    """How long the scheduler has to place the pod, in seconds."""
    provisioning = obs.job.provisioning
    return provisioning.timeout_seconds if provisioning and _requests_nodes(obs, pod) else UNSCHEDULABLE_SECONDS


def _requests_nodes(obs: Observation, pod: OwnPod) -> bool:
    """Whether no node was chosen for the pod, and the pods with a node are fewer than the minimum."""
    placed = sum(member.node is not None for member in obs.members)
    return obs.job.provisioning is not None and pod.node is None and placed < obs.spec.minimum


def back_off(obs: Observation, now: float, staying: tuple[OwnPod, ...], cause: RetryCause, why: str) -> Observation:
    """Keep only the pods `staying`, and try again later. Keep none if they lack the master or are fewer than the
    minimum.

    If the cause is that the scheduler cannot place the other pods, fewer than the minimum may stay, too. Pods that wait
    for their next master stay, and that master counts as one of them: `elastic_rules.end_without_master` limits their
    wait.

    The failed size, or any size if no pod is left, is tried again after the wait in `WAITS`. Up to half of the wait is
    added, depending on the job's uid, so that two competing jobs do not retry in step. If no new node came, sizes are
    tried meanwhile, but no new nodes are requested. Tries whose pods the scheduler placed nowhere have a count of their
    own (139).
    """
    before, unplaced = obs.status.failed_size, cause is RetryCause.UNSCHEDULABLE
    attempt = before.attempt + 1 if before and (before.cause is cause or not unplaced) else 1
    wait = doubled(*WAITS[cause], attempt)
    wait += wait * (sum(map(ord, obs.job.uid)) % 50) // 100
    has_master = master_in(staying) is not None
    awaits_master = bool(staying) and not has_master and obs.status.master_lost_time is not None
    size = len(staying) + awaits_master
    starts_over = size < (1 if unplaced else obs.spec.minimum) or not (has_master or awaits_master)
    for_nodes = cause is RetryCause.NODES_NOT_PROVISIONED
    failed = Retry(
        reason=sentence(why),
        not_before=end_of_wait(now + wait),
        attempt=attempt,
        size=None if for_nodes else 1 if starts_over else size + 1,
        waits_for="Nodes" if for_nodes else None,
        cause=cause,
    )
    obs = obs.with_status(failed_size=failed, replicas=len(staying))
    event = Event(EventReason.SCALE_UP_BLOCKED, joined(why, f"The operator retries in {wait:.0f} s."), "Warning")
    if starts_over:
        return replace_all(obs.with_status(target_replicas=0), event)
    to_delete = [obs.deletion(pod, why) for pod in obs.members if pod not in staying]
    return replace(obs.decided(event, to_delete), members=staying)
