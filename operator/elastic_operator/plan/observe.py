"""What happened to one job since its status was written: ends, failures, losses, incarnations that are over.

From the job's pods and its last status; the result is the status with those facts recorded, and which pods are still
members. What the job gets next is the allocator's to say (`allocate.py`), what is then done `settle.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from elastic_operator.api.status import ConditionType, JobStatus, Retry
from elastic_operator.plan.decisions import Event
from elastic_operator.plan.model import Job, OwnPod
from elastic_operator.plan.observation import (
    Observation,
    at,
    end_incarnation,
    fail,
    pods,
    present,
    record,
    replace_all,
    seconds,
    set_condition,
)
from elastic_operator.plan.taken_back import blocked, refused, stuck

DISTURBANCE_SECONDS = 120.0
"""An agent that gives up so soon after a pod joined, left or was lost is not held against the script."""
STEADY_SECONDS = 600.0
"""Running so long forgets earlier failures."""
MAX_BACKOFF_SECONDS = 60


def observe(job: Job, unready_since: Mapping[str, float], now: float) -> Observation:
    """What happened to `job`; `unready_since` says since when each node that is not Ready is so."""
    status = job.status if job.status.incarnation else job.status.model_copy(update={"incarnation": 1})
    seen = Observation(job=job, status=status)
    if status.finished or job.spec is None:
        return seen
    seen = _sort_pods(seen, unready_since, now)
    for rule in (_deadline, _success, _failure, _suspension, _outdated, _losses, refused, blocked, stuck, _steady):
        seen = rule(seen, now)
        if seen.status.finished:
            return seen
        if seen.status.incarnation != status.incarnation:
            break
    return _hold(seen, now)


def _hold(seen: Observation, now: float) -> Observation:
    """A job between two incarnations keeps its place while it waits; one that could not start lets others pass."""
    retry = seen.status.retry
    if retry is None or retry.waits_for or (retry.size is not None and seen.live):
        return seen
    until = seconds(retry.not_before)
    return replace(seen, hold_until=until, held_back=retry.size is not None and now < until)


def _sort_pods(seen: Observation, unready_since: Mapping[str, float], now: float) -> Observation:
    """Members on one side, pods that must go on the other."""
    assert seen.job.spec is not None
    patience = seen.job.spec.recovery.node_loss_seconds
    own_nodes = {pod.node for pod in seen.job.pods if pod.node is not None}
    lost_nodes = frozenset(n for n in own_nodes if n in unready_since and now >= unready_since[n] + patience)
    live: list[OwnPod] = []
    gone: list[tuple[OwnPod, str]] = []
    wake: list[float] = []
    for pod in sorted(seen.job.pods, key=lambda p: (p.role != "master", p.index)):
        if pod.node is not None and pod.node in unready_since and pod.node not in lost_nodes:
            wake.append(unready_since[pod.node] + patience)
        if pod.node in lost_nodes and not pod.ended:
            gone.append((pod, f"node {pod.node} has been unreachable for {patience} s"))
        elif pod.deleting_since is not None:
            continue
        elif pod.incarnation != seen.status.incarnation:
            gone.append((pod, f"incarnation {pod.incarnation} is over"))
        elif pod.ended and pod.disrupted:
            gone.append((pod, pod.disrupted))
        elif not pod.ended:
            live.append(pod)
    finishing = any(p.main.exit_code == 0 and not _told_to_go(p) for p in present(seen))
    return replace(
        seen,
        live=tuple(live),
        gone=tuple(gone),
        lost_nodes=lost_nodes,
        finishing=finishing,
        wake_at=tuple(wake),
    )


def _deadline(seen: Observation, now: float) -> Observation:
    assert seen.job.spec is not None
    limit = seen.job.spec.active_deadline_seconds
    if limit is None or seen.status.start_time is None:
        return seen
    end = seconds(seen.status.start_time) + limit
    if now < end:
        return replace(seen, wake_at=(*seen.wake_at, end))
    return fail(seen, now, "DeadlineExceeded", f"activeDeadlineSeconds ({limit}) passed; raise it to run longer.")


def _success(seen: Observation, now: float) -> Observation:
    """The master's main container decides; told to go first, its exit says nothing."""
    for pod in present(seen):
        if pod.role == "master" and pod.main.exit_code == 0 and not _told_to_go(pod):
            told = "The master finished with exit code 0."
            status = seen.status.model_copy(update={"completion_time": at(now), "retry": None})
            status = set_condition(status, ConditionType.SUCCEEDED, "True", "Succeeded", told, seen.job.generation, now)
            event = Event("Succeeded", told)
            return replace(seen, status=status, commit=True, events=(*seen.events, event))
    return seen


def _failure(seen: Observation, now: float) -> Observation:
    """An agent that gave up ends the incarnation; whether it counts depends on what happened just before."""
    assert seen.job.spec is not None
    failed = [p for p in present(seen) if _failed(p) and not _told_to_go(p) and p.node not in seen.lost_nodes]
    if not failed or seen.job.spec.suspend:
        return seen
    first = min(failed, key=lambda p: (p.main.is_consequence, p.main.finished_at or now, p.role != "master", p.index))
    what = describe_failure(first)
    counts = not _disturbed(seen, first.main.finished_at or now)
    failures = seen.status.failures + counts
    attempt = (seen.status.retry.attempt if seen.status.retry else 0) + 1
    status = seen.status.model_copy(update={"failures": failures, "restarts": seen.status.restarts + 1})
    limit = seen.job.spec.recovery.max_failures_without_progress
    if counts and failures >= max(1, limit):
        return fail(replace(seen, status=status), now, "RestartLimitReached", f"{what} (failure {failures} in a row)")
    wait = min(2 ** (attempt - 1), MAX_BACKOFF_SECONDS)
    retry = Retry(reason=f"{what}.", not_before=at(now + wait + 0.999), attempt=attempt)
    kind = f"Failure {failures} of {max(1, limit)}" if counts else "Not counted as a failure (the group just changed)"
    event = Event("NewIncarnation", f"{what}. {kind}; all pods are replaced after {wait} s.", "Warning")
    return replace_all(seen, end_incarnation(status, retry=retry), event)


def _suspension(seen: Observation, now: float) -> Observation:
    assert seen.job.spec is not None
    if not seen.job.spec.suspend or not seen.live:
        return seen
    status = record(seen.status, now, len(seen.live), 0, "Suspended", "spec.suspend is true")
    event = Event("ScaledDown", f"Suspended: {pods(len(seen.live))} stopped.")
    return replace_all(seen, end_incarnation(status, target_replicas=0, retry=None), event)


def _outdated(seen: Observation, now: float) -> Observation:
    """Pods of an older template: the job was suspended, changed and resumed faster than anybody looked."""
    wanted = seen.job.fingerprints
    if not any(pod.template and pod.template != wanted.get(pod.role, pod.template) for pod in seen.live):
        return seen
    status = record(seen.status, now, len(seen.live), 0, "Suspended", "the template was changed")
    event = Event("NewIncarnation", "The template was changed while suspended; all pods are replaced.")
    return replace_all(seen, end_incarnation(status, target_replicas=0, retry=None), event)


def _losses(seen: Observation, now: float) -> Observation:
    """Fewer members than last reported: some were lost. Without its master an incarnation is over.

    And with a node: nothing ends the connections to a machine that is off, and the others would wait for it in vain.
    """
    lost = seen.status.replicas - len(_reported(seen))
    has_master = bool(seen.live) and seen.live[0].role == "master"
    if seen.live and seen.status.replicas and not has_master:
        lost = max(lost, 1)
    if lost <= 0 or (seen.finishing and has_master):
        return seen
    why = _why_lost(seen, lost)
    status = seen.status.model_copy(update={"restarts": seen.status.restarts + lost, "replicas": len(seen.live)})
    status = _wait_if_repeated(status, now, why)
    status = record(status, now, seen.status.replicas, seen.status.replicas - lost, "PodLost", why)
    kind = "NodeLost" if any(pod.node in seen.lost_nodes for pod, _ in seen.gone) else "PodLost"
    seen = replace(seen, status=status, commit=True, events=(*seen.events, Event(kind, why, "Warning")))
    if not has_master:
        text = "The master is gone: all pods are replaced under a new rendezvous id."
        return replace_all(seen, end_incarnation(status), Event("MasterReplaced", text, "Warning"))
    if kind == "NodeLost":
        text = "A node is gone, and connections to it may never end: all pods are replaced under a new rendezvous id."
        return replace_all(seen, end_incarnation(status), Event("NewIncarnation", text, "Warning"))
    return seen


def _reported(seen: Observation) -> list[OwnPod]:
    """The members that the last status knew; pods made since do not stand in for one that was lost meanwhile."""
    listed = {pod.name for pod in seen.status.pods}
    return [pod for pod in seen.live if not listed or seen.status.pods_not_listed or pod.name in listed]


def _wait_if_repeated(status: JobStatus, now: float, why: str) -> JobStatus:
    """Pods that are lost as fast as they are made (a kubelet that refuses them, say) are not made without end."""
    lost = [c for c in status.history if c.reason == "PodLost" and now - seconds(c.time) <= DISTURBANCE_SECONDS]
    if len(lost) < 2:
        return status
    wait = min(2 ** (len(lost) - 1), MAX_BACKOFF_SECONDS)
    retry = Retry(reason=f"{len(lost) + 1} losses in two minutes. {why}", not_before=at(now + wait), attempt=len(lost))
    return status.model_copy(update={"retry": retry})


def _steady(seen: Observation, now: float) -> Observation:
    """Ten quiet minutes forget what went wrong before; a size that failed is tried again when its time has come."""
    since = seen.status.running_since
    if since is None or not (seen.status.failures or seen.status.retry):
        return seen
    due = seconds(since) + STEADY_SECONDS
    if now < due:
        return replace(seen, wake_at=(*seen.wake_at, due))
    return replace(seen, status=seen.status.model_copy(update={"failures": 0, "retry": None}))


def describe_failure(pod: OwnPod) -> str:
    """One failed pod in words: who, how, and the end of what it said."""
    how = f"exit code {pod.main.exit_code}" if pod.main.exit_code is not None else "no exit code"
    reason = f" ({pod.main.reason})" if pod.main.reason not in ("", "Error") else ""
    said = f": {pod.main.message.strip()}" if pod.main.message.strip() else ""
    return f"{pod.name} failed with {how}{reason}{said}"


def _failed(pod: OwnPod) -> bool:
    if pod.disrupted:
        return False
    return bool(pod.main.exit_code) or (pod.phase == "Failed" and pod.main.exit_code is None)


def _told_to_go(pod: OwnPod) -> bool:
    """Whether the pod was asked to stop before its main container ended: its exit code then says nothing.

    The kubelet ends a deletion with another one, of no grace, and that moves the time: it says no more when the pod was
    asked. A pod that ended by itself is not seen so, since its deletion takes effect at once.
    """
    if pod.deleting_since is None:
        return False
    if pod.grace_seconds == 0:
        return True
    return pod.main.finished_at is None or pod.main.finished_at >= pod.deleting_since


def _disturbed(seen: Observation, failed_at: float) -> bool:
    """Whether a pod joined, left or was lost shortly before. The pods an incarnation begins with do not count."""
    changes = [seconds(c.time) for c in seen.status.history if c.from_ > 0 and c.to > 0]
    master = next((p for p in present(seen) if p.role == "master"), None)
    if master and master.main.running_since is not None:
        started = master.main.running_since
        changes += [p.main.running_since or 0.0 for p in present(seen) if p.created > started]
    changes += [p.deleting_since for p in present(seen) if p.deleting_since is not None]
    return any(0 <= failed_at - change <= DISTURBANCE_SECONDS for change in changes)


def _why_lost(seen: Observation, lost: int) -> str:
    """Names the pods: those that go for the cluster's reasons, then what the last status listed and is no more."""
    alive = {pod.name for pod in seen.live}
    causes = {pod.name: why for pod, why in seen.gone if pod.incarnation == seen.status.incarnation}
    causes |= {pod.name: pod.disrupted for pod in present(seen) if pod.disrupted}
    listed = [p.name for p in seen.status.pods if p.name not in alive and p.phase in ("Pending", "Running")]
    names = list(dict.fromkeys([*causes, *listed]))[:lost]
    told = [f"{name} ({causes[name]})" if causes.get(name) else name for name in names]
    return f"Lost {', '.join(told) or 'a pod'}; not counted as a failure."
