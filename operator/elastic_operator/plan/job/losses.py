"""Lost pods: how they are counted and described, and how long the job waits before it replaces them.

Repeated losses make a job wait, depending on their cause (137). Losses that come together count as one. The deletion or
eviction of a running pod causes no wait, because somebody had a reason for it. If a kubelet refuses pods, the node is
to blame: the job avoids that node for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace
from math import inf

from elastic_api.status import LOST, MAX_AVOIDED, ChangeReason, Retry, RetryCause
from elastic_operator.attempts import doubled
from elastic_operator.plan.facts.decisions import Event, EventReason
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.text import pods
from elastic_operator.plan.facts.times import end_of_wait, seconds, status_time
from elastic_operator.plan.facts.waits import MAX_BACKOFF_SECONDS
from elastic_operator.plan.job.avoided_nodes import ONE_LOSS_SECONDS, avoided_nodes, is_together, refused_by, remembered
from elastic_operator.plan.job.failures import JUST_CHANGED_SECONDS, has_failed
from elastic_operator.plan.job.observation import Observation, master_of, present_pods, replace_all
from elastic_operator.plan.job.survivors import trains_on
from elastic_worker.contract import ROLE_MASTER


def record_lost_pods(obs: Observation, now: float) -> Observation:
    """Record lost pods: there are fewer members than last reported. If the master is lost, the incarnation is over
    (13).

    The incarnation is also over if a node is lost (47), unless the other pods have formed a group without that node
    (146). Nothing ends the connections to a machine that is off, so the other pods would wait for it forever.
    """
    has_master = master_of(obs) is not None
    lost = lost_count(obs)
    if obs.members and obs.status.replicas and not has_master and not has_no_master_yet(obs):
        lost = max(lost, 1)
    if lost <= 0 or (obs.finishing and has_master):
        return obs
    obs = count_losses(obs, lost, now)
    if not has_master:
        text = "The master is gone: all pods are replaced under a new rendezvous id."
        return replace_all(obs, Event(EventReason.MASTER_REPLACED, text, "Warning"))
    if node_is_lost(obs) and not trains_on(obs):
        text = "A node is gone, and connections to it may never end: all pods are replaced under a new rendezvous id."
        return replace_all(obs, Event(EventReason.NEW_INCARNATION, text, "Warning"))
    return obs


def has_no_master_yet(obs: Observation) -> bool:
    """Whether no master of this incarnation was created yet, because a late pod of an earlier incarnation had its name:
    the only master in the last status is one that leaves, and no object shows another one.
    """
    masters = [pod for pod in obs.status.pods if pod.role == ROLE_MASTER]
    leaves = bool(masters) and all(pod.phase == "Terminating" for pod in masters)
    return leaves and not any(pod.role == ROLE_MASTER for pod in present_pods(obs))


def lost_count(obs: Observation) -> int:
    """How many of the members in the last status are lost."""
    return obs.status.replicas - len(reported(obs))


def count_losses(
    obs: Observation, lost: int, now: float, *, reason: ChangeReason = ChangeReason.POD_LOST
) -> Observation:
    """The observation with these losses recorded, and an event for them.

    The status is written before pods are created or deleted for the loss, unless nothing is lost without it (197).
    """
    why, excused, previous = _why_lost(obs, lost), _is_excused(obs, lost, now), obs.status.replicas
    obs = obs.with_status(
        restarts=obs.status.restarts + lost,
        replicas=len(obs.members),
        avoided_nodes=avoided_nodes(obs, now),
        held_until=None,
    )
    reasons = LOST
    if reason == ChangeReason.MASTER_LOST:
        obs, reasons = end_backoff_for_master(obs, now), frozenset({ChangeReason.MASTER_LOST})
    obs = _wait_if_repeated(obs, now, why, reasons=reasons, excused=excused)
    obs = obs.with_change(now, previous, previous - lost, reason, why, excused=excused)
    first = obs.write_status_first or reason == ChangeReason.MASTER_LOST or not (excused and _is_seen_again(obs))
    event = Event(EventReason.NODE_LOST if node_is_lost(obs) else EventReason.POD_LOST, why, "Warning")
    return replace(obs.with_event(event), write_status_first=first)


def _is_seen_again(obs: Observation) -> bool:
    """Whether a later leader judges the loss in the same way, even if successors of the pods exist by then: the status
    lists each pod with its uid, the lost pods had run, and no pod is deleted that shows a cause.
    """
    if obs.to_delete or obs.status.pods_not_listed or not obs.status.pods:
        return False
    alive = {pod.uid for pod in obs.members}
    return all(pod.uid and (pod.uid in alive or pod.phase != "Pending") for pod in obs.status.pods)


def node_is_lost(obs: Observation) -> bool:
    """Whether any of the pods to delete is on a lost node."""
    return any(obs.is_lost(deletion.pod.node) for deletion in obs.to_delete)


def reported(obs: Observation) -> list[OwnPod]:
    """The members that the last status lists. They are compared by uid, so a pod that was created since hides no loss,
    not even that of a pod with the same name. A status of an older release has no uids.
    """
    listed = {pod.name: pod.uid for pod in obs.status.pods}
    if not listed or obs.status.pods_not_listed:
        return list(obs.members)
    return [pod for pod in obs.members if pod.name in listed and listed[pod.name] in (None, pod.uid)]


def _is_excused(obs: Observation, lost: int, now: float) -> bool:
    """Whether the loss causes no wait: the pods ran and were deleted or evicted, or a node refused them (137).

    Further refusals by a node that is avoided already are not excused, because the planner did not choose that node. If
    more nodes refuse pods than can be avoided, the pods are to blame; otherwise they would move from node to node
    forever. A pod that was deleted before it ran is not excused, because its successor may be deleted at once again. A
    pod that the status does not list is not excused either, because it is unknown whether it ran.
    """
    gone = [deletion.pod for deletion in obs.to_delete if deletion.pod.incarnation == obs.status.incarnation]
    if node_is_lost(obs) or any(map(has_failed, gone)):
        return False
    known, refused = remembered(obs.status, now), refused_by(obs)
    if refused and "avoidedNodes" in obs.job.context.pruned_status_fields:
        return False
    if len(known.keys() | refused.keys()) > MAX_AVOIDED:
        return False
    if any(now < seconds(known[node].until) and not is_together(known[node], now) for node in refused if node in known):
        return False
    named = {pod.name for pod in reported(obs)} | {pod.name for pod in gone if pod.refused}
    named |= {pod.name for pod in present_pods(obs) if _has_run(pod)}  # the status may not say so yet (151)
    if obs.status.pods_not_listed and len(_known_to_go(obs)) < lost:
        return False
    return not any(pod.phase == "Pending" and pod.name not in named for pod in obs.status.pods)


def _known_to_go(obs: Observation) -> set[str]:
    """The lost pods that the status lists, and existing ones that have run or were refused.

    Pods whose deletion was requested before the newest change was recorded belong to an earlier loss.
    """
    alive = {pod.name for pod in reported(obs)}
    counted = seconds(obs.status.history[0].time) if obs.status.history else 0
    listed = {pod.name for pod in obs.status.pods if pod.is_alive}
    leaving = {
        pod.name
        for pod in present_pods(obs)
        if (pod.refused or _has_run(pod)) and (pod.deleting_since is None or pod.deleting_since > counted)
    }
    return (listed | leaving) - alive


def _has_run(pod: OwnPod) -> bool:
    return pod.main.running_since is not None or pod.main.exit_code is not None


def _times_apart(times: Iterable[float]) -> int:
    """The number of losses: losses that come together are one."""
    count, first = 0, -inf
    for time in sorted(times):
        if time >= first + ONE_LOSS_SECONDS:
            count, first = count + 1, time
    return count


def _wait_if_repeated(obs: Observation, now: float, why: str, *, reasons: Set[str], excused: bool) -> Observation:
    """The observation, with a wait if pods are lost as fast as they are created (20)."""
    lost = [seconds(change.time) for change in obs.status.history if change.reason in reasons and not change.excused]
    before = _times_apart([now, *(time for time in lost if now - time <= JUST_CHANGED_SECONDS)]) - 1
    if excused or before < 2:
        return obs
    wait = doubled(1, MAX_BACKOFF_SECONDS, before)
    why = f"There were {before + 1} losses in two minutes. {why}"
    retry = Retry(reason=why, not_before=end_of_wait(now + wait), attempt=before, cause=RetryCause.POD_LOST)
    return obs.with_status(retry=retry)


def end_backoff_for_master(obs: Observation, now: float) -> Observation:
    """The observation of a job whose new master is created at once, because no pod trains without it.

    A back-off for lost workers, or for a size up to the minimum, ends at once. The number of its tries is kept (139),
    and so is the back-off for a size beyond the minimum.
    """
    retry, failed_size = (_ended(obs, wait, now) for wait in (obs.status.retry, obs.status.failed_size))
    return obs.with_status(retry=retry, failed_size=failed_size)


def _ended(obs: Observation, wait: Retry | None, now: float) -> Retry | None:
    if wait is None or (wait.size or 0) > obs.spec.minimum:
        return wait
    return wait.model_copy(update={"not_before": min(wait.not_before, status_time(now))})


def _why_lost(obs: Observation, lost: int) -> str:
    """A sentence with the lost pods: pods that the cluster ended, then deleted pods that the last status lists."""
    alive = {pod.name for pod in reported(obs)}
    going = (one for one in obs.to_delete if one.uid not in obs.job.context.misplaced)
    causes = {one.name: one.reason for one in going if one.pod.incarnation == obs.status.incarnation}
    causes |= {pod.name: pod.disrupted for pod in present_pods(obs) if pod.disrupted}
    listed = [p.name for p in obs.status.pods if p.name not in alive and p.is_alive]
    names = list(dict.fromkeys([*causes, *listed]))[:lost]
    texts = [f"{name} ({causes[name]})" if causes.get(name) else name for name in names]
    why = f"The job lost {', '.join(texts) or 'a pod'}. This does not count as a failure."
    if node_is_lost(obs) and obs.survivors is not None and trains_on(obs):
        return f"{why} A group of {pods(len(obs.survivors.pods))} trains on without that node, and is kept."
    return why
