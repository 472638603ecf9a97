"""Records a change of a job's size in its status and an event, in most cases before pods are deleted for it (25)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import floor

from elastic_api.status import ChangeReason, SizeReason, StatusFields
from elastic_operator.plan.facts.decisions import Event, EventReason, Grant
from elastic_operator.plan.facts.job import listed_workers
from elastic_operator.plan.facts.text import Reason, listed, names_of, pods, pods_are
from elastic_operator.plan.facts.times import seconds, status_time
from elastic_operator.plan.job.observation import Observation, end_incarnation, master_of


def restart_if_needed(obs: Observation, grant: Grant) -> Observation:
    """Begin a new incarnation if all pods are given up, or if the running pods were made with a `min:max` that excludes
    the new size (11).

    A group below the job's minimum does not train at any size. Its pods stay and wait for the others (16). A group that
    never ran as a whole also starts over when it loses a pod for good (142).
    """
    if not obs.members or obs.finishing:
        return obs
    assignment = grant.assignment
    size, release = grant.target_replicas, assignment.release
    may_run = obs.job.spec is None or size >= obs.job.spec.minimum
    frozen = next((pod.nnodes for pod in obs.members if pod.nnodes), None)
    if size == 0:
        why = after = f"All pods are deleted: {grant.message}"
    elif frozen and not frozen[0] <= size <= frozen[1] and size > len(assignment.keep):
        why = f"The running pods were created for {frozen[0]} to {pods(frozen[1])}; {size} is not among these sizes."
        after = f"{why} All pods are replaced."
    elif frozen and may_run and size < frozen[0] and release:
        why = f"The running pods were created for {frozen[0]} to {pods(frozen[1])}; {size} is below that."
        after = f"{why} All pods are replaced."
    elif not may_run and (obs.to_delete or release) and _is_starting(obs):
        why = after = f"All pods are deleted before the start: {grant.message}"
    else:
        return obs
    to_delete = [obs.deletion(pod, why) for pod in obs.members]
    return replace(end_incarnation(obs).decided(Event(EventReason.NEW_INCARNATION, after), to_delete), members=())


def _is_starting(obs: Observation) -> bool:
    """Whether the group has not run as a whole yet: all of its pods were made since the last change of size.

    The API server's times are whole seconds, and its start may not be written yet (25).
    """
    history = obs.status.history
    last = floor(seconds(history[0].time)) if history else 0
    return obs.status.running_since is None and all(pod.created >= last for pod in obs.members)


def record_change(obs: Observation, grant: Grant, now: float) -> Observation:
    """Record a new target in the history, with an event. Shrinking is written down before it is done, unless all pods
    are evicted for foreign pods (203).

    Growth is written down later (25): a replica that finds the new pods, but not the status, makes the same decision
    again, and no pod waits for a write.
    """
    before, after, status = obs.status.target_replicas, grant.target_replicas, obs.status
    if before == after or obs.finishing:
        return _record_exchange(obs, grant, now)
    planned = bool(grant.assignment.release) or after == 0
    update: StatusFields = {"target_replicas": after}
    reason: str
    if after < status.replicas:
        update["replicas"] = after
    if after == 0:
        update["turn_started"] = None
    if before == 0:
        needs_nodes = grant.size_reason.code == SizeReason.WAITING_FOR_NODES
        update["start_time"] = status.start_time or status_time(now)
        update["turn_started"] = None if needs_nodes else status_time(now)
        reason, event = ChangeReason.STARTED, Event(EventReason.SCALED_UP, f"The job starts with {pods(after)}.")
        if needs_nodes:
            reason, event = ChangeReason.WAITING_FOR_NODES, Event(EventReason.WAITING_FOR_NODES, grant.message)
    elif after > before:
        update["resizes"] = status.resizes + 1
        text = f"The job grows from {before} to {pods(after)}."
        reason, event = ChangeReason.SCALED_UP, Event(EventReason.SCALED_UP, text)
    else:
        update["resizes"] = status.resizes + (1 if planned else 0)
        reason, why = why_smaller(grant)
        is_preempted = after == 0 and grant.preemptors
        text = f"The job is preempted: {why}" if is_preempted else _shrinks(before, after, why)
        event = Event(EventReason(reason), text)
    if after > before and grant.victim_jobs:
        give = "gives" if len(grant.victim_jobs) == 1 else "give"
        victims = f"{listed(names_of(grant.victim_jobs))} {give} up pods for it."
        event = Event(EventReason.QUOTA_RECLAIMED, f"{event.message} {victims}")
    message = event.message if grant.preemptors or grant.victim_jobs else grant.message
    withdrawn = after < before and not planned
    write_first = obs.write_status_first or (after < before and not _is_found_again(obs, grant))
    obs = obs.with_status(**update).with_change(now, before, after, reason, message, excused=withdrawn)
    return replace(obs.with_event(event), write_status_first=write_first)


def _record_exchange(obs: Observation, grant: Grant, now: float) -> Observation:
    """Record that some pods are released for others and created again elsewhere, with the size unchanged.

    If none is created again, an earlier leader has already recorded the change and got no further.
    """
    assignment = grant.assignment
    leaves = any(pod.uid in assignment.release for pod in obs.members)
    if obs.finishing or not (grant.preemptors and assignment.create and leaves):
        return obs
    smaller = why_smaller(grant)
    why = Reason(smaller.code, f"{smaller.message} As many pods are created elsewhere.")
    event = Event(EventReason(why.code), why.message)
    return obs.with_change(now, grant.target_replicas, grant.target_replicas, *why).with_event(event)


def record_unwritten_evictions(obs: Observation, now: float) -> Observation:
    """Record pods that were evicted for foreign pods before the status said so: the write failed, or the leader ended
    (203). The pods are not lost.

    Without a master the rules about lost masters apply.
    """
    evicted, status = obs.job.context.evicted_for, obs.status
    if not evicted or master_of(obs) is None or obs.finishing:
        return obs
    before, after = status.target_replicas, status.target_replicas - len(evicted)
    why = _reclaimed(len(evicted), names_of(evicted))
    obs = obs.with_status(
        pods=[pod for pod in status.pods if pod.uid not in evicted],
        replicas=status.replicas - len(evicted),
        target_replicas=after,
        resizes=status.resizes + 1,
    )
    event = Event(EventReason.QUOTA_RECLAIMED, _shrinks(before, after, why.message))
    return obs.with_change(now, before, after, *why).with_event(event)


def _is_found_again(obs: Observation, grant: Grant) -> bool:
    """Whether a later leader finds out why the pods are gone, even if the status does not say so
    (`record_unwritten_evictions`): the job keeps its master, and the status lists each of these workers.
    """
    if not grant.only_for_foreign_pods or master_of(obs) is None or obs.to_delete or obs.status.pods_not_listed:
        return False
    return listed_workers(obs.status).issuperset(grant.assignment.release)


def _shrinks(before: int, after: int, why: str) -> str:
    return f"The job shrinks from {before} to {pods(after)}: {why}"


def why_smaller(grant: Grant) -> Reason:
    """The reason of the smaller size: the preemptors, if there are any."""
    if not grant.preemptors:
        return Reason(ChangeReason.SCALED_DOWN, grant.message)
    released = len(grant.assignment.release)
    if grant.reclaimed:
        return _reclaimed(released, names_of(grant.preemptors))
    come = "comes" if len(grant.preemptors) == 1 else "come"
    what = f"{pods_are(released)} evicted for {listed(names_of(grant.preemptors))}"
    return Reason(ChangeReason.PREEMPTED_BY_JOB, f"{what}, which {come} before this job in the team.")


def _reclaimed(evicted: int, preemptors: Sequence[str]) -> Reason:
    are = "is" if len(preemptors) == 1 else "are"
    what = f"{pods_are(evicted)} evicted for {listed(preemptors)}, which {are} entitled to the GPUs."
    return Reason(ChangeReason.QUOTA_RECLAIMED, what)
